//! Large cluster whose objects have the size of real ones: the API server keeps about 6 KB for a Pod, of which ctk uses
//! name, address and node.

use std::fmt;
use std::sync::Arc;

use testkit::api_server::{Answer, ApiRequest, BodyPart};

/// Items of a page, as this program asks for them.
const PAGE: usize = 500;

#[derive(Clone, Copy)]
pub struct World {
    pub pods: usize,
    pub services: usize,
    pub slices: usize,
    nodes: usize,
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let World {
            pods,
            services,
            slices,
            nodes,
        } = *self;
        write!(
            f,
            "{pods} Pods of {} bytes, {services} Services of {}, {slices} slices of {}, {nodes} Nodes",
            self.pod(1).len(),
            self.service(1).len(),
            self.slice(1).len()
        )
    }
}

impl World {
    pub fn of(pods: usize) -> Self {
        World {
            pods,
            services: pods / 5,
            slices: pods / 5 * 2,
            nodes: pods / 100 + 1,
        }
    }

    fn kinds(self) -> [(&'static str, &'static str, &'static str, usize, bool); 5] {
        let (one, discovery) = ("v1", "discovery.k8s.io/v1");
        [
            ("/api/v1/services", "ServiceList", one, self.services, true),
            (
                "/apis/discovery.k8s.io/v1/endpointslices",
                "EndpointSliceList",
                discovery,
                self.slices,
                true,
            ),
            ("/api/v1/nodes", "NodeList", one, self.nodes, false),
            (
                "/apis/networking.k8s.io/v1/servicecidrs",
                "ServiceCIDRList",
                "networking.k8s.io/v1",
                1,
                false,
            ),
            ("/api/v1/pods", "PodList", one, self.pods, false),
        ]
    }

    /// All requests of a read of this cluster.
    pub fn requests(self) -> Vec<String> {
        let mut all = Vec::new();
        for (path, _, _, count, paged) in self.kinds() {
            if !paged {
                all.push(format!("{path}?resourceVersion=0"));
                continue;
            }
            all.push(format!("{path}?limit={PAGE}"));
            let pages = (PAGE..count).step_by(PAGE);
            all.extend(pages.map(|from| format!("{path}?limit={PAGE}&continue={from}")));
        }
        all
    }

    pub fn answer(self, asked: &ApiRequest) -> Answer {
        let kinds = self.kinds();
        let Some((_, kind, group, count, _)) = kinds.into_iter().find(|kind| kind.0 == asked.path)
        else {
            return Answer::status(404);
        };
        let number = |name: &str| asked.value(name).and_then(|n| n.parse::<usize>().ok());
        let from = number("continue").unwrap_or(0);
        let to = number("limit").map_or(count, |limit| count.min(from + limit));
        let next = match to < count {
            true => format!(r#","continue":"{to}""#),
            false => String::new(),
        };
        let head = format!(
            r#"{{"kind":"{kind}","apiVersion":"{group}","metadata":{{"resourceVersion":"7"{next}}},"items":["#
        );
        // Several items at once: a frame for each item would slow both readers alike.
        let step = 8;
        let items = move |n: usize| {
            let first = from + n * step;
            let some = (first..to.min(first + step)).map(|n| match kind {
                "ServiceList" => self.service(n),
                "EndpointSliceList" => self.slice(n),
                "NodeList" => self.node(n),
                "ServiceCIDRList" => {
                    r#"{"metadata":{"name":"kubernetes"},"spec":{"cidrs":["10.96.0.0/12"]}}"#
                        .to_owned()
                }
                _ => self.pod(n),
            });
            let comma = if n == 0 { "" } else { "," };
            format!("{comma}{}", some.collect::<Vec<_>>().join(","))
        };
        Answer {
            body: vec![
                BodyPart::Text(head),
                BodyPart::Many(Arc::new(items), (to - from).div_ceil(step)),
                BodyPart::Text("]}".to_owned()),
            ],
            ..Answer::ok("")
        }
    }

    fn owner(self, pod: usize) -> (String, String) {
        let service = pod % self.services.max(1);
        match service {
            0 => ("default".to_owned(), "kubernetes".to_owned()),
            _ => (
                format!("team-{}", service % 200),
                format!("service-{service}"),
            ),
        }
    }

    fn pod(self, n: usize) -> String {
        let (namespace, app) = self.owner(n);
        fill(
            include_str!("pod.json"),
            &[
                ("@name", &pod_name(&app, n)),
                ("@namespace", &namespace),
                ("@app", &app),
                (
                    "@node",
                    &format!("node-{}.example.internal", n % self.nodes),
                ),
                ("@ip", &ip(128, n)),
                ("@uid", &uid(n)),
            ],
        )
    }

    fn service(self, n: usize) -> String {
        let (namespace, app) = self.owner(n);
        fill(
            include_str!("service.json"),
            &[
                ("@namespace", &namespace),
                ("@app", &app),
                ("@ip", &ip(96, n + 1)),
                ("@uid", &uid(n)),
            ],
        )
    }

    /// Two slices for each Service, which share its pods.
    fn slice(self, n: usize) -> String {
        let (namespace, app) = self.owner(n / 2);
        let pods = (n / 2..self.pods)
            .step_by(self.services.max(1))
            .skip(n % 2)
            .step_by(2);
        let endpoints: Vec<String> = pods
            .map(|pod| {
                fill(
                    include_str!("endpoint.json"),
                    &[
                        ("@name", &pod_name(&app, pod)),
                        ("@namespace", &namespace),
                        (
                            "@node",
                            &format!("node-{}.example.internal", pod % self.nodes),
                        ),
                        ("@ip", &ip(128, pod)),
                        ("@uid", &uid(pod)),
                    ],
                )
            })
            .collect();
        fill(
            include_str!("slice.json"),
            &[
                ("@name", &format!("{app}-{n:05}")),
                ("@namespace", &namespace),
                ("@app", &app),
                ("@uid", &uid(n)),
                ("@endpoints", &endpoints.join(",")),
            ],
        )
    }

    fn node(self, n: usize) -> String {
        let images: Vec<String> = (0..50)
            .map(|image| {
                let name = format!("registry.example.internal/team/image-{image}");
                format!(
                    r#"{{"names":["{name}@sha256:{:064x}","{name}:v1.{image}"],"sizeBytes":{}}}"#,
                    image * 7919,
                    12_345_678 + image
                )
            })
            .collect();
        format!(
            r#"{{"metadata":{{"name":"node-{n}.example.internal","labels":{{"kubernetes.io/hostname":"node-{n}"}}}},
            "spec":{{"podCIDR":"10.{}.{}.0/24"}},
            "status":{{"addresses":[{{"type":"InternalIP","address":"{}"}}],"images":[{}]}}}}"#,
            128 + (n >> 8),
            n & 255,
            ip(10, n),
            images.join(",")
        )
    }
}

fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len() * 2);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('@') {
        text.push_str(before);
        let value = values.iter().find(|(name, _)| {
            let name = &name[1..];
            let behind = after.strip_prefix(name);
            behind.is_some_and(|b| !b.starts_with(|c: char| c.is_ascii_lowercase()))
        });
        let (name, value) = value.expect("the template has no other names");
        text.push_str(value);
        rest = &after[name.len() - 1..];
    }
    text.push_str(rest);
    text
}

fn ip(first: usize, n: usize) -> String {
    format!("10.{}.{}.{}", first + (n >> 16), (n >> 8) & 255, n & 255)
}

/// Name of the length that a Deployment gives.
fn pod_name(app: &str, n: usize) -> String {
    format!("{app}-6d5c8f9b7b-{n:05}")
}

fn uid(n: usize) -> String {
    format!("{n:08x}-3f6a-4c1e-9d2b-{:012x}", n * 7919)
}
