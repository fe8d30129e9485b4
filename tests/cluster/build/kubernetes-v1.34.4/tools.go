//go:build tools

// Package kubernetes names the programs that are built here, so that go.mod has all they need.
package kubernetes

import (
	_ "k8s.io/kubernetes/cmd/kube-proxy"
)
