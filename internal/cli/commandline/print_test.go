package commandline

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/msghandler/msghandler/internal/escape"
	"github.com/msghandler/msghandler/test/must"
)

func TestNullDeviceIsNoTerminal(t *testing.T) {
	t.Parallel()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	must.Succeed(t, err)
	defer null.Close()
	if IsTerminal(null) {
		t.Error(os.DevNull + " is taken for a terminal")
	}
}

func TestErrorsEscapeControlCharacters(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	Program{Name: "msghandler"}.fail(Process{Err: &out}, errors.New("no \u009b2J\nnor this"))
	if out.String() != "msghandler: no "+`\u009b2J`+"\n  nor this\n" {
		t.Errorf("the error is printed as %q", &out)
	}
}

// People read documents for programs on terminals, too.
func TestJSONEscapesInvisibleCharacters(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"\x7f", "\u0080\u009b2J\u009f", "\u2028\u202etxt.exe", "\ufeff\ufffe\uffff", `\u009b \`, "\x00\x1b\r\n", "<é€🙂>",
		"\U000e0061", "\U0010ffff",
	} {
		for name, print := range map[string]func(s *Session) error{
			"document": func(s *Session) error { return s.printJSON(map[string]string{"routing_key": text}) },
			"line":     func(s *Session) error { return s.PrintJSONLine(map[string]string{"routing_key": text}) },
		} {
			var out bytes.Buffer
			must.Succeed(t, print(&Session{Process: Process{Out: &out}}))
			var got map[string]string
			if err := json.Unmarshal(out.Bytes(), &got); err != nil || got["routing_key"] != text {
				t.Errorf("%s of %q: got %q, %v, of\n%s", name, text, got["routing_key"], err, &out)
			}
			if shown := out.String(); escape.Lines(shown) != shown {
				t.Errorf("%s of %q holds invisible characters: %q", name, text, shown)
			}
		}
	}
}

func TestYAMLRoundTripsEveryText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"\x7f", "\u0080\u0085\u009f", "\u2028\u202e", "\ufeff\ufffe\uffff", `\u0041 \`, "\x00\x1b\r\n", "<é€🙂>",
	} {
		var out bytes.Buffer
		s := &Session{Process: Process{Out: &out}}
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
