//! The table of scenes: how the provider fails in each, what the demo says about it, and what must come of it.

use std::time::Duration;

pub(super) const INTRODUCTION: &str = "Outlast keeps an agent running while its provider fails. Here is an outage: this \
    program as an agent, against a scripted provider on this machine. No key, no account, no network. The clock runs \
    faster, so that hours pass in seconds; all times are the agent's. Ctrl-C ends it.";

pub(super) const HINTS: &str = "  outlast                         a chat in this folder
  outlast gateway run -- claude   keeps your own agent alive
  outlast doctor                  is a provider in reach?
  outlast --help                  and README.md, docs/";

/// The file in which each run of the tool leaves a line.
pub(super) const TOOL_LOG_FILE: &str = "proof.txt";

#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    /// The label in the picture.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The text before the scene.
    pub(super) introduction: &'static str,
    /// The script of the provider.
    pub(super) script: &'static str,
    /// The part of the prompt that makes the scripted provider call a tool.
    pub(super) work: &'static str,
    /// The expected answer.
    pub(super) answer: &'static str,
    /// The agent's flags.
    pub(super) flags: &'static [&'static str],
    /// The speed of the agent's clock, in times of real time.
    pub(super) speed: u32,
    /// The expected waits, by the agent's clock.
    pub(super) expected_waits: &'static [Duration],
    pub(super) kind: SceneKind,
}

/// The course of a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SceneKind {
    /// The agent answers in the end.
    Answered,
    /// The agent is killed `after` the beginning of its last wait, and restarted when it was `gone` for that long.
    Killed { after: Duration, gone: Duration },
    /// The agent gives up at once: no retry can succeed.
    Refused,
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

pub(super) static SCENES: [Scene; 4] = [
    Scene {
        name: "overload",
        title: "too busy, then told to wait",
        introduction: "The provider has too much to do, twice (529). Then it says: too many requests, come back in 45 seconds \
            (429). Look at the waits: a little longer each time, and then as long as was said.",
        script: "overloaded:2+rate-limited:retry-after=45+ok:agent,times=always",
        work: "",
        answer: "All is well again.",
        flags: &["--policy", "overnight"],
        speed: 5,
        expected_waits: &[seconds(5), seconds(10), seconds(45)],
        kind: SceneKind::Answered,
    },
    Scene {
        name: "cut",
        title: "an answer that breaks off",
        introduction: "The connection is lost in the middle of a sentence. Look at the words: the answer goes on where it broke \
            off, and none of them comes twice.",
        script: "drop-after:9,of=agent+ok:agent,times=always",
        work: "",
        answer: "The line went dead in the middle of this sentence, and still you read every word of it once.",
        flags: &["--policy", "overnight", "--after-content", "continue"],
        speed: 2,
        expected_waits: &[seconds(5)],
        kind: SceneKind::Answered,
    },
    Scene {
        name: "5h window",
        title: "five hours, and kill -9",
        introduction: "The agent runs a tool, which adds a line to a file. Then the plan's usage window is closed for five hours. \
            In the middle of that wait the process is killed, and later started again. Look at the time of day at which it \
            asks again, and at the file.",
        script: "ok:agent+usage-limit:reset=18000+ok:agent,times=always",
        work: r#"call bash {"command":"echo the tool ran >> proof.txt"}"#,
        answer: "The line is in the file.",
        flags: &["--policy", "overnight", "--allow", "bash"],
        speed: 1200,
        expected_waits: &[minutes(300)],
        kind: SceneKind::Killed {
            after: minutes(120),
            gone: minutes(60),
        },
    },
    Scene {
        name: "wrong key",
        title: "what never succeeds",
        introduction: "Some failures do not pass: here the key is refused (401). Look at how often it asks, and at what it says.",
        script: "error:401,times=always",
        work: "",
        answer: "",
        flags: &["--policy", "overnight"],
        speed: 5,
        expected_waits: &[],
        kind: SceneKind::Refused,
    },
];

impl Scene {
    /// Returns the agent's prompt.
    pub(super) fn prompt(&self) -> String {
        let steps = match self.work {
            "" => String::new(),
            work => format!("{work}\n"),
        };
        format!("{steps}say {}", self.answer)
    }

    /// Returns the agent's command line as a person would type it.
    pub(super) fn command_line(&self) -> String {
        format!("outlast -p … {}", self.flags.join(" "))
    }

    /// Returns the expected number of requests: the first one, one after each wait, one after each tool.
    pub(super) fn expected_requests(&self) -> usize {
        let tools = usize::from(!self.work.is_empty());
        1 + tools + self.expected_waits.len()
    }
}

/// The time that a person has for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// Enough for everything.
    Reading,
    /// None, and the clock runs faster still.
    Fast,
}

impl Pace {
    /// A comfortable reading speed.
    const WORDS_A_MINUTE: u32 = 240;
    /// The pause after a scene.
    const RESULT_PAUSE: Duration = Duration::from_secs(4);
    /// The factor by which the clock is faster without reading.
    const FAST_FACTOR: u32 = 3;

    pub(super) const fn speed(self, scene: &Scene) -> u32 {
        match self {
            Self::Reading => scene.speed,
            Self::Fast => scene.speed * Self::FAST_FACTOR,
        }
    }

    fn reading_time(self, text: &str) -> Duration {
        let words = u32::try_from(text.split_whitespace().count()).unwrap_or(u32::MAX);
        match self {
            Self::Reading => Duration::from_secs(60) * words / Self::WORDS_A_MINUTE,
            Self::Fast => Duration::ZERO,
        }
    }

    const fn result_pause(self) -> Duration {
        match self {
            Self::Reading => Self::RESULT_PAUSE,
            Self::Fast => Duration::ZERO,
        }
    }

    /// Waits while a person reads.
    pub(super) async fn pause_for_reading(self, text: &str) {
        tokio::time::sleep(self.reading_time(text)).await;
    }

    /// Waits while a person looks at the findings of a scene.
    pub(super) async fn pause_for_result(self) {
        tokio::time::sleep(self.result_pause()).await;
    }

    /// Returns the real duration of the demo without the time for computing.
    #[cfg(test)]
    fn planned_duration(self) -> Duration {
        let scenes = SCENES.iter().map(|scene| {
            let waits: Duration = scene.expected_waits.iter().sum();
            self.reading_time(scene.introduction) + waits / self.speed(scene) + self.result_pause()
        });
        self.reading_time(INTRODUCTION) + scenes.sum::<Duration>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_takes_about_90s_at_reading_pace_and_15s_when_fast() {
        let planned = Pace::Reading.planned_duration().as_secs();
        assert!((75..=105).contains(&planned), "{planned}s");
        let fast = Pace::Fast.planned_duration().as_secs();
        assert!(fast <= 15, "{fast}s");
    }

    #[test]
    fn killed_agent_restarts_before_its_wait_ends() {
        for scene in &SCENES {
            if let SceneKind::Killed { after, gone } = scene.kind {
                let last = scene.expected_waits.last().copied().unwrap_or_default();
                assert!(after + gone < last, "{}", scene.name);
            }
        }
    }
}
