//! Single values of a file: texts, counts, and what is written as text: durations, money, conditions, paths.
//!
//! Each is refused with its place and a sentence about what was expected.

use super::printable;
use super::words::not_one_of;
use crate::definition::{Condition, OUTPUT, Source, Target};
use outlast_kernel::breaker;
use outlast_kernel::budget::Cost;
use outlast_kernel::policy::{BackoffKind, Policy};
use outlast_kernel::time::Span;
use outlast_kernel::verdict::Class;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// The edge that ends a run.
const COMPLETE: &str = "_complete";
/// The prefix that marks a name as an input of the run.
const RUN_INPUT_PREFIX: &str = "inputs.";
/// Names that steps cannot have, because they mean something else.
const RESERVED: [&str; 2] = [COMPLETE, "inputs"];
/// The longest name.
const MAX_NAME_LENGTH: usize = 64;

/// A value where the file allows a text or another form.
pub(super) enum Shape<T> {
    Text(String),
    /// A number, `true` or `false`; its place says how it is written.
    Plain,
    List(Vec<Spanned<Scalar>>),
    Map(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Shape<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShapeVisitor(PhantomData))
    }
}

struct ShapeVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ShapeVisitor<T> {
    type Value = Shape<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape<T>, E> {
        Ok(Shape::Plain)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape<T>, E> {
        Ok(Shape::Plain)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Shape<T>, E> {
        Ok(Shape::Plain)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape<T>, E> {
        Ok(Shape::Plain)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Shape<T>, E> {
        let text = without_zero_byte(text).map_err(E::custom)?;
        Ok(Shape::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Shape<T>, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Shape::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Shape<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Shape::Map)
    }
}

/// A text.
pub(super) struct Text(pub(super) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Shape::<IgnoredAny>::deserialize(deserializer)? {
            Shape::Text(text) => Ok(Self(text)),
            Shape::Plain => Err(D::Error::custom("expected a text; put it in quotes")),
            Shape::List(_) | Shape::Map(_) => Err(D::Error::custom("expected a text")),
        }
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// A whole number of at least 1.
pub(super) struct Count<N>(pub(super) N);

impl<'de, N: TryFrom<NonZeroU64>> Deserialize<'de> for Count<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        let count = NonZeroU64::new(number).and_then(|count| N::try_from(count).ok());
        count.map(Self).ok_or_else(|| {
            D::Error::custom(format!(
                "expected a whole number of at least 1, found `{number}`"
            ))
        })
    }
}

/// Declares types of values that are written as text, each with the function that parses it. `String` takes a number
/// or a truth value as it is written, [`Text`] does not.
macro_rules! written {
    ($($(#[$doc:meta])* $name:ident($inner:ty) = $parse:expr, from $text:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq)]
        pub(super) struct $name(pub(super) $inner);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <$text>::deserialize(deserializer)?;
                $parse(text.as_ref()).map(Self).map_err(D::Error::custom)
            }
        }
    )*};
}

written! {
    /// A text, or a number or truth value as it is written.
    Scalar(String) = without_zero_byte, from String;
    /// A text with something in it.
    NonEmpty(String) = non_empty, from Text;
    /// The name of an input or of a choice.
    #[derive(PartialOrd, Ord)]
    Name(String) = name, from String;
    /// The name of a step.
    StepName(String) = step_name, from Text;
    /// The name of an artifact.
    ArtifactName(String) = artifact_name, from Text;
    /// The name of a variable.
    #[derive(PartialOrd, Ord)]
    VariableName(String) = variable, from String;
    /// A path that stays within its folder.
    RelativePath(PathBuf) = path_within, from Text;
    /// The source of an input.
    InputSource(Source) = source, from Text;
    /// The condition of an edge or a loop.
    StepCondition(Condition) = condition, from Text;
    /// A duration; it may be zero.
    Time(Duration) = duration, from String;
    /// A duration above zero.
    PositiveTime(Duration) = positive_duration, from String;
    /// A number of minutes above zero.
    PositiveMinutes(Duration) = minutes, from String;
    /// An amount of dollars above zero.
    Dollars(Cost) = dollars, from String;
    /// A share between 0 and 1, in percent.
    Percent(u8) = percent, from String;
    /// The name of a retry policy.
    PolicyName(&'static str) = policy_name, from Text;
    /// The shape of a backoff.
    Backoff(BackoffKind) = backoff, from Text;
    /// A class that the circuit breaker can track.
    TrackedClass(Class) = tracked_class, from Text;
}

fn without_zero_byte(text: &str) -> Result<String, String> {
    if text.contains('\0') {
        return Err("a text may not have a zero byte in it".to_owned());
    }
    Ok(text.to_owned())
}

fn non_empty(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("expected a text, found an empty one".to_owned());
    }
    Ok(text.to_owned())
}

/// Returns the meaning of a word from a list.
fn one_of<T: Copy, const N: usize>(text: &str, words: [(&str, T); N]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text);
    found
        .map(|(_, value)| *value)
        .ok_or_else(|| not_one_of(text, &words.map(|(word, _)| word)))
}

fn policy_name(text: &str) -> Result<&'static str, String> {
    one_of(text, Policy::NAMES.map(|name| (name, name)))
}

fn backoff(text: &str) -> Result<BackoffKind, String> {
    let kinds = [
        ("fixed", BackoffKind::Fixed),
        ("linear", BackoffKind::Linear),
        ("exponential", BackoffKind::Exponential),
    ];
    one_of(text, kinds)
}

fn tracked_class(text: &str) -> Result<Class, String> {
    if matches!(text, "canceled" | "cancelled") {
        return Err(breaker::Error::CanceledTracked.to_string());
    }
    let classes = [
        ("transient", Class::Transient),
        ("deterministic", Class::Deterministic),
        ("budget_exhausted", Class::BudgetExhausted),
        ("contract_failure", Class::ContractFailure),
        ("test_failure", Class::TestFailure),
    ];
    one_of(text, classes)
}

fn duration(text: &str) -> Result<Duration, String> {
    let span = text.parse::<Span>();
    span.map(|span| span.0)
        .map_err(|error| format!("{error}, found `{}`", printable(text)))
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("expected a duration above zero".to_owned()),
        duration => Ok(duration),
    }
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.bytes().all(|byte| byte.is_ascii_digit());
    let span = minutes.then(|| format!("{text}m").parse::<Span>());
    match span {
        Some(Ok(Span(duration))) if !duration.is_zero() => Ok(duration),
        _ => Err(format!(
            "expected a number of minutes above zero, found `{}`",
            printable(text)
        )),
    }
}

fn dollars(text: &str) -> Result<Cost, String> {
    let wrong = || {
        let text = printable(text);
        format!("expected an amount of dollars above zero, such as 5.00, found `{text}`")
    };
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 6 {
        return Err(wrong());
    }
    let millionths = format!("{whole}{part:0<6}").parse().map_err(|_| wrong())?;
    if millionths == 0 {
        return Err(wrong());
    }
    Ok(Cost(millionths))
}

/// A share between nothing and all, in hundredths.
fn percent(text: &str) -> Result<u8, String> {
    let wrong = || {
        let text = printable(text);
        format!("expected a share between 0 and 1, such as 0.8, found `{text}`")
    };
    let share: f64 = text.parse().map_err(|_| wrong())?;
    if !(0.0..=1.0).contains(&share) {
        return Err(wrong());
    }
    // Rounded up: a threshold is never lower than it was written.
    let percent = (0..=100_u8).find(|percent| f64::from(*percent) >= share * 100.0 - 1e-9);
    percent.ok_or_else(wrong)
}

/// A name of letters, digits, `-` and `_`.
fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if text.is_empty() || text.len() > MAX_NAME_LENGTH || !text.chars().all(fits) {
        return Err(format!(
            "expected a name of at most {MAX_NAME_LENGTH} letters, digits, `-` and `_`, found `{}`",
            printable(text)
        ));
    }
    Ok(text.to_owned())
}

fn step_name(text: &str) -> Result<String, String> {
    if RESERVED.contains(&text) {
        return Err(format!("a step cannot be called `{text}`"));
    }
    name(text)
}

/// The name of an artifact: as that of a step, with dots.
fn artifact_name(text: &str) -> Result<String, String> {
    if text == OUTPUT {
        return Err("`output` is what a step says in the end; call the file otherwise".to_owned());
    }
    name(&text.replace('.', "-")).map(|_| text.to_owned())
}

fn variable(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = text.chars().next().is_some_and(|c| !c.is_ascii_digit());
    if !begins || !text.chars().all(fits) {
        return Err(format!(
            "expected the name of a variable, such as NAME, found `{}`",
            printable(text)
        ));
    }
    Ok(text.to_owned())
}

fn path_within(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    let stays = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if text.is_empty() || text.contains('\0') || !path.components().all(stays) {
        return Err(format!(
            "expected a path within the folder, without `..` and a leading `/`, found `{}`",
            printable(text)
        ));
    }
    Ok(path.to_owned())
}

/// Where an edge leads.
pub(super) fn target(text: &str) -> Target {
    if text == COMPLETE {
        Target::Complete
    } else {
        Target::Step(text.to_owned())
    }
}

fn source(text: &str) -> Result<Source, String> {
    let (from, optional) = match text.strip_suffix('?') {
        Some(from) => (from, true),
        None => (text, false),
    };
    if let Some(name) = from.strip_prefix(RUN_INPUT_PREFIX) {
        if optional {
            return Err("an input of the run is always there; leave out the `?`".to_owned());
        }
        return Ok(Source::Run {
            name: name.to_owned(),
        });
    }
    let (step, artifact) = from.split_once('.').unwrap_or((from, OUTPUT));
    if step.is_empty() || artifact.is_empty() {
        return Err(format!(
            "expected STEP, STEP.ARTIFACT or inputs.NAME, found `{}`",
            printable(text)
        ));
    }
    Ok(Source::Step {
        step: step.to_owned(),
        artifact: artifact.to_owned(),
        optional,
    })
}

fn condition(text: &str) -> Result<Condition, String> {
    let wrong = || {
        format!(
            "expected outcome=success, outcome=failure, context.KEY=VALUE or context.KEY!=VALUE, found `{}`",
            printable(text)
        )
    };
    let (left, value) = text.split_once('=').ok_or_else(wrong)?;
    let (left, negated) = match left.strip_suffix('!') {
        Some(left) => (left.trim(), true),
        None => (left.trim(), false),
    };
    let value = value.trim();
    match (left, value, negated) {
        ("outcome", "success", false) | ("outcome", "failure", true) => Ok(Condition::Success),
        ("outcome", "failure", false) | ("outcome", "success", true) => Ok(Condition::Failure),
        _ => match left.strip_prefix("context.") {
            Some(key) if !key.is_empty() => Ok(Condition::Context {
                key: key.to_owned(),
                value: value.to_owned(),
                negated,
            }),
            _ => Err(wrong()),
        },
    }
}
