use super::*;

/// A server that keeps its answers in the order in which it is asked for them.
struct Script {
    answers: Vec<Result<&'static str, GetError>>,
    asked: Vec<String>,
    body: &'static [u8],
}

impl Read for Script {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.body.read(buffer)
    }
}

impl Server for Script {
    fn get(&mut self, path: &str) -> Result<(), GetError> {
        self.asked.push(path.to_owned());
        let answer = match self.answers.is_empty() {
            true => Err(GetError::Forbidden),
            false => self.answers.remove(0),
        };
        self.body = answer?.as_bytes();
        Ok(())
    }
}

fn script(answers: Vec<Result<&'static str, GetError>>) -> Script {
    Script {
        answers,
        asked: Vec::new(),
        body: b"",
    }
}

fn asking(left: Duration) -> Asking {
    Asking {
        deadline: Instant::now() + left,
        consistent: false,
    }
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_token_of_any_text_goes_through_a_query() {
    assert_eq!(encoded("aZ9-_.~"), "aZ9-_.~");
    assert_eq!(encoded("a b&c=d/é"), "a%20b%26c%3Dd%2F%C3%A9");
    let more =
        r#"{"kind":"ServiceList","apiVersion":"v1","metadata":{"continue":"a=b&c"},"items":[]}"#;
    let end = r#"{"kind":"ServiceList","apiVersion":"v1","items":[]}"#;
    let mut server = script(vec![Ok(more), Ok(end)]);
    read(&mut server, asking(LONG), &[]).unwrap();
    let services = &server.asked[..2];
    assert_eq!(
        services,
        [
            "/api/v1/services?limit=500",
            "/api/v1/services?limit=500&continue=a%3Db%26c"
        ]
    );
}

#[test]
fn what_ends_all_is_an_error_at_first_and_a_gap_later() {
    for error in [
        GetError::Unauthorized,
        GetError::TimedOut,
        GetError::Connection("refused".to_owned()),
    ] {
        let mut server = script(vec![Err(error.clone())]);
        let failed = read(&mut server, asking(LONG), &[]).unwrap_err();
        assert_eq!(failed.to_string(), error.to_string());
        assert_eq!(server.asked.len(), 1);

        let services = r#"{"kind":"ServiceList","apiVersion":"v1","items":[]}"#;
        let mut server = script(vec![Ok(services), Err(error)]);
        let loaded = read(&mut server, asking(LONG), &[]).unwrap();
        let states: Vec<State> = loaded.listed.iter().map(|one| one.state).collect();
        let failed = State::Failed;
        assert_eq!(states, [State::Complete, failed, failed, failed, failed]);
        assert_eq!(server.asked.len(), 2, "the others are not tried");
        assert!(!loaded.summary.complete);
    }
}

#[test]
fn no_wait_outlasts_the_time_that_is_left() {
    let busy = || GetError::Busy {
        status: 503,
        after: None,
    };
    let mut server = script(vec![Err(busy()); 20]);
    let loaded = read(&mut server, asking(Duration::ZERO), &[]).unwrap();
    assert_eq!(
        server.asked.len(),
        ORDER.len(),
        "each kind once, and no wait"
    );
    assert!(loaded.listed.iter().all(|one| one.state == State::Failed));
}
