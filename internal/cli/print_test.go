package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/msghandler/msghandler/internal/escape"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

func TestAges(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "0s ago", 119 * time.Second: "119s ago", 2 * time.Minute: "2m ago", 3 * time.Hour: "3h ago", 72 * time.Hour: "3d ago",
		-5 * time.Second: "in 5s", -300 * time.Millisecond: "in 0s",
	} {
		if got := age(now.Add(-d), now); got != want {
			t.Errorf("%s: got %q instead of %q", d, got, want)
		}
	}
	if got := age(time.Time{}, now); got != "-" {
		t.Error(got)
	}
}

func TestALongErrorKeepsItsEnds(t *testing.T) {
	t.Parallel()
	const long = "Confirm of producer orders at dns:///orders:9000: Unavailable: dial tcp 10.0.0.1:9000: connect: connection refused"
	for text, want := range map[string]string{
		"":                      "",
		strings.Repeat("é", 59): strings.Repeat("é", 59),
		strings.Repeat("é", 60): strings.Repeat("é", 28) + "..." + strings.Repeat("é", 28),
		long:                    "Confirm of producer orders a... connect: connection refused",
	} {
		if got := shorten(text); got != want {
			t.Errorf("%q is shortened to %q instead of %q", text, got, want)
		}
	}
}

func TestTheNullDeviceIsNoTerminal(t *testing.T) {
	t.Parallel()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if isTerminal(null) {
		t.Error("somebody is to be asked at " + os.DevNull)
	}
}

func TestWhatATerminalWouldObeyIsEscaped(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &session{Process: Process{Out: &out}}
	if err := (&tailCommand{}).print(s, &msghandlerv1.Move{Producer: "a\u009b", Id: "b\u202e"}); err != nil {
		t.Fatal(err)
	}
	if told := out.String(); !strings.HasSuffix(told, ` a\u009b/b\u202e`+"\n") {
		t.Errorf("tail tells %q", told)
	}
	out.Reset()
	if (&Process{Err: &out}).fail(errors.New("no \u009b2J\nnor this")); out.String() != "msghandler: no "+`\u009b2J`+"\nnor this\n" {
		t.Errorf("an error is told as %q", &out)
	}
}

// Documents for programs are looked at on terminals too: they hold every text, and nothing that cannot be seen.
func TestJSONHoldsEveryTextVisibly(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"\x7f", "\u0080\u009b2J\u009f", "\u2028\u202etxt.exe", "\ufeff\ufffe\uffff", `\u009b \`, "\x00\x1b\r\n", "<é€🙂>", "\U000e0061", "\U0010ffff",
	} {
		for name, print := range map[string]func(s *session) error{
			"document": func(s *session) error { return s.printJSON(map[string]string{"routing_key": text}) },
			"line":     func(s *session) error { return s.printJSONLine(map[string]string{"routing_key": text}) },
		} {
			var out bytes.Buffer
			if err := print(&session{Process: Process{Out: &out}}); err != nil {
				t.Fatal(err)
			}
			var got map[string]string
			if err := json.Unmarshal(out.Bytes(), &got); err != nil || got["routing_key"] != text {
				t.Errorf("%s of %q: got %q, %v, of\n%s", name, text, got["routing_key"], err, &out)
			}
			if shown := out.String(); escape.Lines(shown) != shown {
				t.Errorf("%s of %q holds what cannot be seen: %q", name, text, shown)
			}
		}
	}
	var out bytes.Buffer
	s := &session{Process: Process{Out: &out}}
	if err := (&tailCommand{Output: outputJSON}).print(s, &msghandlerv1.Move{Producer: "a\u009b", Id: "b\u202e"}); err != nil {
		t.Fatal(err)
	}
	if told := out.String(); escape.Lines(told) != told {
		t.Errorf("tail tells %q", told)
	}
}

func TestYAMLHoldsEveryText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"\x7f", "\u0080\u0085\u009f", "\u2028\u202e", "\ufeff\ufffe\uffff", `\u0041 \`, "\x00\x1b\r\n", "<é€🙂>"} {
		var out bytes.Buffer
		s := &session{Process: Process{Out: &out}}
		if err := s.printYAML(map[string]string{"body": text}); err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got map[string]string
		if err := yaml.Unmarshal(out.Bytes(), &got); err != nil || got["body"] != text {
			t.Errorf("%q: got %q, %v, of\n%s", text, got["body"], err, &out)
		}
	}
}

func TestPreviewsOfBodies(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", previewText-1) + "äöü"
	tests := map[string]struct {
		body []byte
		want string
	}{
		"none":   {nil, ""},
		"text":   {[]byte("hello\n"), "hello\n\n"},
		"cut":    {[]byte(long), "a\n... and 6 bytes more; --output json has them all\n"},
		"binary": {[]byte{0, 1, 0xff}, "00000000  00 01 ff"},
		"escape": {[]byte("\x1b[2J"), "00000000  1b 5b 32 4a"},
		"spaces": {[]byte("a\r\n\tb\u0085\v\u2028c"), "a\\r\n\tb\\u0085\\v\\u2028c\n"},
	}
	for name, tt := range tests {
		if got := preview(tt.body); !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
