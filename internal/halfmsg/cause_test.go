package halfmsg

import (
	"strings"
	"testing"
)

// Errors of one reason have one cause, and errors of different reasons have different causes.
func TestCauseLeavesOutWhatVaries(t *testing.T) {
	t.Parallel()
	const dial = `Confirm of producer billing at dns:///billing.svc:9000: rpc error: code = Unavailable desc = ` +
		`connection error: desc = "transport: Error while dialing: dial tcp 10.2.3.4:9000: connect: connection refused"`
	for text, want := range map[string]string{
		"":   "",
		dial: "Unavailable: connection refused",
		strings.ReplaceAll(dial, "10.2.3.4", "[fd00::17]"):                   "Unavailable: connection refused",
		`Exception (404) Reason: "NOT_FOUND - no exchange 'a' in vhost '/'"`: "NOT_FOUND - no exchange 'a' in vhost '/'",
		"returned by the broker: 312 NO_ROUTE":                               "returned by the broker: 312 NO_ROUTE",
		"order o-000017 has 3 lines of 129.90 EUR":                           "order … has … lines of … EUR",
		"no row 4bf92f35-77b3-4da6-a3ce-929d0e0e4736 at 10.0.0.1":            "no row … at …",
		"x509: certificate signed by unknown authority":                      "x509: certificate signed by unknown authority",
		"a line\n\tand\x00 another":                                          "a line and another",
		"the address shop-1.svc:9000 has 2 errors of h2":                     "the address ….svc:… has … errors of …",
		"the leader of partition 7 is gone":                                  "the leader of partition … is gone",
		"digest 4bf92f3577b34da6a3ce929d0e0e4736 is internationalisation":    "digest … is internationalisation",
		"no answer of the broker within 30s":                                 "no answer of the broker within …",
		strings.Repeat("é", 200):                                             strings.Repeat("é", maxShortCause-1) + "…",
	} {
		if got := Cause(text, Name{Producer: "orders", ID: "o-000017"}); got != want {
			t.Errorf("%q has the cause %q, want %q", text, got, want)
		}
		if word := CauseWord(want); !strings.Contains(strings.ToLower(text), word) {
			t.Errorf("%q does not have the word %q of its cause", text, word)
		}
	}
	if CauseWord(NoCause) != "" || CauseOf(&Record{}) != NoCause {
		t.Error("a message without an error has a cause")
	}
}

// FuzzCauseWord: a store that looks for the word of a cause finds each error with that cause.
func FuzzCauseWord(f *testing.F) {
	for _, seed := range []string{"", "NO_ROUTE 312", "rpc error: code = X desc = connection error: desc = \"a\"b", "ſK"} {
		f.Add(seed, "1001")
	}
	f.Fuzz(func(t *testing.T, text, id string) {
		word := CauseWord(Cause(text, Name{ID: id}))
		if !strings.Contains(strings.ToLower(text), word) && isASCII(text) {
			t.Errorf("%q does not have the word %q of its cause", text, word)
		}
	})
}

func isASCII(s string) bool { return strings.IndexFunc(s, func(r rune) bool { return r > 127 }) < 0 }
