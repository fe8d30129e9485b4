//! Random world: Services with pods and clients, and one change of each Service.

use serde_json::{Value, json};

use crate::api::Api;
use crate::network::{NODES, OUTSIDE, POD_PORTS, Place, pod_address};
use crate::traffic::Clients;
use testkit::dice::Dice;

/// Kind of a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalIp,
    /// External address and port, the same for every such Service of a world.
    SharedExternalIp,
    Affinity,
    InternalLocal,
    ExternalLocal,
    PublishNotReady,
    TwoPorts,
    TcpToo,
}

/// Cluster addresses are the most frequent kind.
const KINDS: [Kind; 12] = [
    Kind::ClusterIp,
    Kind::ClusterIp,
    Kind::NodePort,
    Kind::LoadBalancer,
    Kind::ExternalIp,
    Kind::SharedExternalIp,
    Kind::Affinity,
    Kind::InternalLocal,
    Kind::ExternalLocal,
    Kind::PublishNotReady,
    Kind::TwoPorts,
    Kind::TcpToo,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    PodGone,
    Terminating,
    TerminatingNotServing,
    NotReady,
    AllGone,
    TargetPort,
    ServiceGone,
    Relabelled,
    /// The pod is deleted, and an unrelated pod gets its address.
    AddressTaken,
    Replaced,
    NodePort,
    ToClusterIp,
    PortGone,
    ExternalGone,
}

struct Pod {
    name: String,
    address: String,
}

struct Service {
    name: String,
    kind: Kind,
    port: u64,
    target: u16,
    address: String,
    node_port: Option<u64>,
    /// External or load-balancer address.
    external: Option<String>,
    pods: Vec<Pod>,
}

pub struct World {
    pub namespace: String,
    services: Vec<Service>,
    /// Description of the changes.
    pub notes: Vec<String>,
    dice: Dice,
    free: [Vec<u64>; 2],
    pods: usize,
    client_port: u16,
}

impl World {
    /// Creates Services and their pods.
    pub fn make(seed: u64, api: &Api) -> Self {
        let mut world = World {
            namespace: format!("world-{seed}"),
            services: Vec::new(),
            notes: Vec::new(),
            dice: Dice(seed),
            free: [1, 2].map(|_| (12..=39).collect()),
            pods: 0,
            client_port: 41_000,
        };
        api.namespace(&world.namespace);
        for _ in 0..2 + world.dice.below(3) {
            let kind = *world.dice.of(&KINDS);
            world.add(kind, api);
        }
        // Two Services with one external address and port.
        if world.dice.one_in(4) {
            world.add(Kind::SharedExternalIp, api);
            world.add(Kind::SharedExternalIp, api);
        }
        world
    }

    /// Perhaps adds a Service or two, with clients: kube-proxy does not see them before it continues.
    pub fn add_late(&mut self, api: &Api, clients: &Clients) {
        for _ in 0..self.dice.below(3) {
            let kind = *self.dice.of(&KINDS);
            let service = self.add(kind, api);
            self.ask(service, clients);
            let Service { name, kind, .. } = &self.services[service];
            self.notes.push(format!("{name} ({kind:?}): new"));
        }
    }

    fn add(&mut self, kind: Kind, api: &Api) -> usize {
        let service = self.service(kind, api);
        self.services.push(service);
        self.services.len() - 1
    }

    fn service(&mut self, kind: Kind, api: &Api) -> Service {
        let dice = &mut self.dice;
        let i = self.services.len();
        let name = format!("s{i}");
        let mut target = *dice.of(&POD_PORTS);
        let mut port = *dice.of(&[53, 1514, 2055, 8125]);
        let mut external = None;
        let mut spec = json!({"selector": {"app": name}});
        match kind {
            Kind::NodePort => spec["type"] = json!("NodePort"),
            Kind::ExternalLocal => {
                spec["type"] = json!("NodePort");
                spec["externalTrafficPolicy"] = json!("Local");
            }
            Kind::LoadBalancer => {
                spec["type"] = json!("LoadBalancer");
                external = Some(format!("203.0.113.{}", 20 + i));
            }
            Kind::ExternalIp => {
                external = Some(format!("203.0.113.{}", 100 + i));
                spec["externalIPs"] = json!([external]);
            }
            Kind::SharedExternalIp => {
                external = Some("203.0.113.200".to_owned());
                spec["externalIPs"] = json!([external]);
                (port, target) = (7000, 53);
            }
            Kind::Affinity => spec["sessionAffinity"] = json!("ClientIP"),
            Kind::InternalLocal => spec["internalTrafficPolicy"] = json!("Local"),
            Kind::PublishNotReady => spec["publishNotReadyAddresses"] = json!(true),
            Kind::ClusterIp | Kind::TwoPorts | Kind::TcpToo => {}
        }
        let one = |name: &str, port: u64, target: u16, protocol: &str| json!({"name": name, "port": port, "targetPort": target, "protocol": protocol});
        let mut ports = vec![one("u", port, target, "UDP")];
        match kind {
            Kind::TwoPorts => ports.push(one("v", port + 1, other_port(dice, target), "UDP")),
            Kind::TcpToo => ports.push(one("t", port, target, "TCP")),
            _ => {}
        }
        spec["ports"] = json!(ports);
        let mut pods = Vec::new();
        for n in 0..1 + self.dice.below(4) {
            let local = matches!(kind, Kind::InternalLocal | Kind::ExternalLocal) && n == 0;
            let node = if local { 1 } else { 1 + self.dice.below(2) };
            let ready = kind != Kind::PublishNotReady || self.dice.one_in(2);
            pods.push(self.pod(api, &name, node as usize, ready));
        }
        let made = api.service(&self.namespace, &name, &spec);
        if kind == Kind::LoadBalancer {
            api.load_balancer(&self.namespace, &name, &json!({"ip": external}));
        }
        Service {
            address: made["spec"]["clusterIP"].as_str().unwrap().to_owned(),
            node_port: made["spec"]["ports"][0]["nodePort"].as_u64(),
            name,
            kind,
            port,
            target,
            external,
            pods,
        }
    }

    fn pod(&mut self, api: &Api, app: &str, node: usize, ready: bool) -> Pod {
        let free = &mut self.free[node - 1];
        let taken = free.swap_remove(self.dice.below(free.len() as u64) as usize);
        self.pod_at(api, app, pod_address(node, taken), ready)
    }

    fn pod_at(&mut self, api: &Api, app: &str, address: String, ready: bool) -> Pod {
        self.pods += 1;
        let name = format!("{app}-{}", self.pods);
        api.pod(&self.namespace, &name, app, &address, ready);
        Pod { name, address }
    }

    /// Starts clients of every frontend: pods of node1, the node itself, and an external machine.
    pub fn ask_all(&mut self, clients: &Clients) {
        for service in 0..self.services.len() {
            self.ask(service, clients);
        }
    }

    fn ask(&mut self, service: usize, clients: &Clients) {
        let Service {
            kind,
            port,
            node_port,
            ..
        } = self.services[service];
        let address = self.services[service].address.clone();
        let cluster = format!("{address}:{port}");
        for _ in 0..2 + self.dice.below(3) {
            self.web(clients, &cluster);
        }
        self.client(clients, Place::Node(1), NODES[0], &cluster);
        if kind == Kind::TwoPorts {
            for _ in 0..2 {
                self.web(clients, &format!("{address}:{}", port + 1));
            }
        }
        let mut outside = Vec::new();
        if let Some(port) = node_port {
            outside.push(format!("{}:{port}", NODES[0]));
            self.web(clients, &format!("{}:{port}", NODES[1]));
        }
        if let Some(address) = &self.services[service].external {
            outside.push(format!("{address}:{port}"));
        }
        for to in outside {
            for _ in 0..2 {
                self.client(clients, Place::Outside, OUTSIDE, &to);
            }
        }
    }

    fn web(&mut self, clients: &Clients, to: &str) {
        let address = pod_address(1, 100 + self.dice.below(10));
        self.client(clients, Place::Clients, &address, to);
    }

    fn client(&mut self, clients: &Clients, place: Place, address: &str, to: &str) {
        self.client_port += 1;
        clients.add(place, address, self.client_port, to);
    }

    /// Applies one random change to each Service.
    pub fn change(&mut self, api: &Api) {
        for service in std::mem::take(&mut self.services) {
            let change = self.choose(&service);
            self.apply(&service, change, api);
            let Service { name, kind, .. } = &service;
            let pods = service.pods.len();
            self.notes
                .push(format!("{name} ({kind:?}, pods: {pods}): {change:?}"));
            self.services.push(service);
        }
    }

    fn choose(&mut self, service: &Service) -> Change {
        use Change::*;
        let mut all = vec![
            PodGone,
            PodGone,
            Terminating,
            TerminatingNotServing,
            NotReady,
            AllGone,
            TargetPort,
            ServiceGone,
            Relabelled,
            AddressTaken,
            Replaced,
            Nothing,
        ];
        if service.node_port.is_some() && service.kind != Kind::LoadBalancer {
            all.extend([Change::NodePort, ToClusterIp]);
        }
        match service.kind {
            Kind::TwoPorts => all.extend([PortGone; 3]),
            Kind::ExternalIp | Kind::SharedExternalIp => all.push(ExternalGone),
            _ => {}
        }
        *self.dice.of(&all)
    }

    fn apply(&mut self, service: &Service, change: Change, api: &Api) {
        let namespace = self.namespace.clone();
        let path = format!("/api/v1/namespaces/{namespace}/services/{}", service.name);
        let one = self.dice.below(service.pods.len() as u64) as usize;
        let pod = &service.pods[one].name;
        let replace =
            |path: &str, value: Value| json!({"op": "replace", "path": path, "value": value});
        let remove = |path: &str| json!({"op": "remove", "path": path});
        match change {
            Change::Nothing => {}
            Change::PodGone => api.remove_pod(&namespace, pod),
            Change::Terminating => api.terminate_pod(&namespace, pod),
            Change::TerminatingNotServing => {
                api.terminate_pod(&namespace, pod);
                api.not_ready(&namespace, pod);
            }
            Change::NotReady => api.not_ready(&namespace, pod),
            Change::AllGone => {
                for pod in &service.pods {
                    api.remove_pod(&namespace, &pod.name);
                }
            }
            Change::TargetPort => {
                let target = other_port(&mut self.dice, service.target);
                let port = replace("/spec/ports/0/targetPort", json!(target));
                api.patch(&path, &json!([port]));
            }
            Change::ServiceGone => api.delete(&path),
            Change::Relabelled => {
                let labels = json!({"metadata": {"labels": {"app": "other"}}});
                let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
                api.merge(&path, &labels);
            }
            Change::AddressTaken => {
                api.remove_pod(&namespace, pod);
                let address = service.pods[one].address.clone();
                self.pod_at(api, "stranger", address, true);
            }
            Change::Replaced => {
                api.remove_pod(&namespace, pod);
                let node = 1 + self.dice.below(2) as usize;
                let name = service.name.clone();
                self.pod(api, &name, node, true);
            }
            Change::NodePort => {
                let port = service.node_port.expect("only such are chosen");
                let other = if port > 30_000 { port - 1 } else { port + 1 };
                let port = replace("/spec/ports/0/nodePort", json!(other));
                api.patch(&path, &json!([port]));
            }
            Change::ToClusterIp => {
                let mut all = vec![
                    replace("/spec/type", json!("ClusterIP")),
                    remove("/spec/ports/0/nodePort"),
                ];
                if service.kind == Kind::ExternalLocal {
                    all.push(remove("/spec/externalTrafficPolicy"));
                }
                api.patch(&path, &json!(all));
            }
            Change::PortGone => api.patch(&path, &json!([remove("/spec/ports/1")])),
            Change::ExternalGone => api.patch(&path, &json!([remove("/spec/externalIPs")])),
        }
    }
}

fn other_port(dice: &mut Dice, not: u16) -> u16 {
    let others: Vec<u16> = POD_PORTS.into_iter().filter(|&port| port != not).collect();
    *dice.of(&others)
}
