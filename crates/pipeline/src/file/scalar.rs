//! Single values of a file: texts, counts, and what is written as text.
//!
//! Each is refused with its place and a sentence about what was expected.

use super::values;
use crate::definition::{Condition, Source};
use outlast_kernel::budget::Cost;
use outlast_kernel::policy::BackoffKind;
use outlast_kernel::verdict::Class;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

/// What stands where a text can stand, or something else in its place.
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
        let text = values::without_zero_byte(text).map_err(E::custom)?;
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
    Scalar(String) = values::without_zero_byte, from String;
    /// A text with something in it.
    NonEmpty(String) = values::non_empty, from Text;
    /// The name of an input or of a choice.
    #[derive(PartialOrd, Ord)]
    Name(String) = values::name, from String;
    /// The name of a step.
    StepName(String) = values::step_name, from Text;
    /// The name of an artifact.
    ArtifactName(String) = values::artifact_name, from Text;
    /// The name of a variable.
    #[derive(PartialOrd, Ord)]
    VariableName(String) = values::variable, from String;
    /// A path that stays within its folder.
    RelativePath(PathBuf) = values::path_within, from Text;
    /// The source of an input.
    InputSource(Source) = values::source, from Text;
    /// The condition of an edge or a loop.
    StepCondition(Condition) = values::condition, from Text;
    /// A duration; it may be zero.
    Time(Duration) = values::duration, from String;
    /// A duration above zero.
    PositiveTime(Duration) = values::positive_duration, from String;
    /// A number of minutes above zero.
    PositiveMinutes(Duration) = values::minutes, from String;
    /// An amount of dollars above zero.
    Dollars(Cost) = values::dollars, from String;
    /// A share between 0 and 1, in percent.
    Percent(u8) = values::percent, from String;
    /// The name of a retry policy.
    PolicyName(&'static str) = values::policy_name, from Text;
    /// The shape of a backoff.
    Backoff(BackoffKind) = values::backoff, from Text;
    /// A class that the circuit breaker can track.
    TrackedClass(Class) = values::tracked_class, from Text;
}
