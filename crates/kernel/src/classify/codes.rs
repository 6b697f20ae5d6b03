//! The meanings of a provider's machine-readable words: codes, types, statuses, reasons, exception names.
//!
//! Words are compared without case and punctuation, so that `RESOURCE_EXHAUSTED`, `resource-exhausted` and
//! `ResourceExhausted` are one word.

use super::CauseFamily;
use crate::verdict::Cause;

/// The meaning of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CodeMeaning {
    /// Exactly this cause.
    Exact(Cause),
    /// A cause of this family; the message may narrow it down.
    Narrows(CauseFamily),
}

/// Returns the meaning of a provider's word, if it is known.
#[expect(clippy::too_many_lines, reason = "a table, one row for each meaning")]
pub(super) fn meaning(word: &str, provider: &str) -> Option<CodeMeaning> {
    use CauseFamily::{BadRequest, Forbidden, Limit, NotFound, Server};
    // Amazon's services add an address before or after the name.
    let word = match memchr::memchr(b':', word.as_bytes()) {
        Some(at) if word[at..].starts_with(":http") => &word[..at],
        _ => word,
    };
    let word = memchr::memrchr(b'#', word.as_bytes()).map_or(word, |at| &word[at + 1..]);
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        return numeric_code_meaning(word, provider);
    }
    let mut buffer = [0; 48];
    let word = normalize(word, &mut buffer)?;
    let word = word.strip_suffix("exception").unwrap_or(word);
    let means = CodeMeaning::Exact;
    Some(match word {
        "overloadederror"
        | "overloaded"
        | "serverisoverloaded"
        | "slowdown"
        | "modelcapacityexhausted"
        | "capacityexceeded"
        | "modelnotready"
        | "engineoverloaded"
        | "serviceoverloaded"
        | "modeloverloaded"
        | "serverbusy" => means(Cause::Overloaded),
        "usagelimitreached"
        | "usagelimitexceeded"
        | "freeusagelimiterror"
        | "gousagelimiterror"
        | "quotaexhausted"
        | "weeklylimitexceeded"
        | "dailylimitexceeded"
        | "subscriptionfreeusageexhausted"
        | "openrouterfreetierdaily" => means(Cause::UsageLimit),
        "insufficientquota"
        | "insufficientbalance"
        | "insufficientcredits"
        | "billingerror"
        | "billinghardlimitreached"
        | "enforcedspendlimitreached"
        | "creditbalancetoolow"
        | "creditserror"
        | "paymentrequired"
        | "insufficientfunds"
        | "insufficientg1creditsbalance"
        | "arrearage"
        | "accountoverdue"
        | "accountsuspended"
        | "monthlylimitreached"
        | "spendlimitreached"
        | "setlimitexceeded"
        | "monthlyrequestcount"
        | "insufficientuserquota"
        | "allocationquotafreetieronly"
        | "monthlylimitexceeded" => means(Cause::Billing),
        "budgetexceeded" | "budgetexceedederror" => means(Cause::CeilingReached),
        "usagenotincluded" | "planrestricted" => means(Cause::Permission),
        "contextlengthexceeded"
        | "modelcontextwindowexceeded"
        | "contentlengthexceedsthreshold"
        | "contextwindowexceeded"
        | "modelmaxprompttokensexceeded"
        | "exceedcontextsizeerror"
        | "prompttoolong"
        | "inputtoolong"
        | "stringabovemaxlength"
        | "contextoverflow"
        | "maxtokensexceeded" => means(Cause::ContextOverflow),
        "requesttoolarge" | "payloadtoolarge" | "requestentitytoolarge" => {
            means(Cause::PayloadTooLarge)
        }
        "contentfilter"
        | "contentpolicyviolation"
        | "cyberpolicy"
        | "safety"
        | "prohibitedcontent"
        | "blocklist"
        | "spii"
        | "imagesafety"
        | "recitation"
        | "responsibleaipolicyviolation"
        | "moderationblocked"
        | "invalidprompt"
        | "contentfiltered"
        | "guardrailintervened"
        | "datainspectionfailed"
        | "sensitive"
        | "moderation"
        | "malwarepolicy"
        | "refusal"
        | "biopolicy" => means(Cause::ContentFilter),
        "invalidapikey"
        | "unrecognizedclient"
        | "expiredtoken"
        | "tokenexpired"
        | "invalidsignature"
        | "apikeyinvalid"
        | "accesstokenexpired"
        | "invalidtoken"
        | "tokenrevoked"
        | "tokeninvalidated"
        | "noorganization"
        | "missingapikey"
        | "authenticationerror"
        | "unauthenticated"
        | "invalidauthentication"
        | "accesstokentypeunsupported" => means(Cause::Auth),
        "accessdenied"
        | "permissiondenied"
        | "permissionerror"
        | "insufficientpermissions"
        | "forbidden"
        | "unsupportedcountryregionterritory"
        | "consumersuspended"
        | "servicedisabled" => CodeMeaning::Narrows(Forbidden),
        "modelnotfound"
        | "deploymentnotfound"
        | "modelnotsupported"
        | "modelnotavailable"
        | "unknownmodel"
        | "invalidmodel"
        | "modelnotexist"
        | "resourcenotfound"
        | "modeldecommissioned" => means(Cause::ModelNotFound),
        "aborterror" | "clientclosedrequest" | "requestcancelled" | "requestcanceled" => {
            means(Cause::Interrupted)
        }
        "modeltimeout" | "timeouterror" | "requesttimeout" | "deadlineexceeded"
        | "gatewaytimeout" => means(Cause::Timeout),
        "ratelimiterror"
        | "ratelimitexceeded"
        | "ratelimited"
        | "ratelimitreached"
        | "toomanyrequests"
        | "throttling"
        | "throttled"
        | "resourceexhausted"
        | "integrationratelimited"
        | "requestlimitexceeded"
        | "limitrequests"
        | "throttlingratequota"
        | "throttlingallocationquota"
        | "throttlinguser"
        | "userratelimitexceeded"
        | "concurrencylimitexceeded"
        | "servicequotaexceeded"
        | "quotaexceeded" => CodeMeaning::Narrows(Limit),
        "apierror"
        | "servererror"
        | "internalservererror"
        | "internalerror"
        | "internal"
        | "internalfailure"
        | "internalserver"
        | "serviceunavailable"
        | "serviceunavailableerror"
        | "unavailable"
        | "unavailableerror"
        | "upstreamhttperror"
        | "modelstreamerror"
        | "modelerror"
        | "backenderror"
        | "badgateway"
        | "engineerror"
        | "servererroroccurred"
        | "error"
        | "vectorstoretimeout" => CodeMeaning::Narrows(Server),
        "notfounderror" | "notfound" => CodeMeaning::Narrows(NotFound),
        "invalidrequesterror"
        | "badrequesterror"
        | "invalidargument"
        | "validation"
        | "badrequest"
        | "failedprecondition"
        | "validationerror"
        | "invalidparameter"
        | "invalidvalue"
        | "unsupportedparameter"
        | "unsupportedvalue"
        | "outofrange"
        | "unprocessableentity"
        | "serialization"
        | "invalidparametererror"
        | "missingrequiredparameter" => CodeMeaning::Narrows(BadRequest),
        _ => return None,
    })
}

/// Returns the meaning of a numeric code, which one provider alone defines.
fn numeric_code_meaning(code: &str, provider: &str) -> Option<CodeMeaning> {
    let means = CodeMeaning::Exact;
    Some(match (provider, code) {
        ("zhipu" | "glm" | "zai" | "z.ai" | "bigmodel", code) => match code {
            "1113" => means(Cause::Billing),
            "1301" => means(Cause::ContentFilter),
            "1302" | "1303" | "1305" => CodeMeaning::Narrows(CauseFamily::Limit),
            "1304" | "1308" | "1310" => means(Cause::UsageLimit),
            "1311" => means(Cause::Permission),
            "1312" => means(Cause::Overloaded),
            _ => return None,
        },
        ("mistral", "1300") => CodeMeaning::Narrows(CauseFamily::Limit),
        ("mistral", "3051") => means(Cause::ContextOverflow),
        ("mistral", "3505") => means(Cause::Overloaded),
        ("cloudflare" | "cloudflare-workers-ai", "3040") => means(Cause::Overloaded),
        _ => return None,
    })
}

/// Returns the word without case and punctuation, within the buffer; `None` when it is too long to be one.
fn normalize<'a>(word: &str, buffer: &'a mut [u8; 48]) -> Option<&'a str> {
    let mut length = 0;
    for byte in word.bytes().filter(u8::is_ascii_alphanumeric) {
        *buffer.get_mut(length)? = byte.to_ascii_lowercase();
        length += 1;
    }
    std::str::from_utf8(&buffer[..length]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_are_known_in_every_spelling() {
        for word in [
            "RESOURCE_EXHAUSTED",
            "resource-exhausted",
            "ResourceExhausted",
            "resource exhausted",
        ] {
            assert_eq!(
                meaning(word, "p"),
                Some(CodeMeaning::Narrows(CauseFamily::Limit)),
                "{word}"
            );
        }
        for word in ["ThrottlingException", "throttlingException", "Throttling"] {
            assert_eq!(
                meaning(word, "p"),
                Some(CodeMeaning::Narrows(CauseFamily::Limit)),
                "{word}"
            );
        }
        assert_eq!(
            meaning("context_length_exceeded", "p"),
            Some(CodeMeaning::Exact(Cause::ContextOverflow))
        );
    }

    #[test]
    fn unknown_and_oversized_codes_have_no_meaning() {
        for word in ["", "whatever", &"x".repeat(10_000), "日本"] {
            assert_eq!(meaning(word, "p"), None);
        }
    }
}
