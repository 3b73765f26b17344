package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/escape"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
)

func TestAgeUsesLargestUnit(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "now", 59 * time.Second: "59 s ago", 119 * time.Second: "1 min ago", 3*time.Hour + time.Minute: "3 h ago",
		72 * time.Hour: "3 d ago", -5 * time.Second: "in 5 s", -300 * time.Millisecond: "now",
	} {
		if got := age(now.Add(-d), now); got != want {
			t.Errorf("%s: got %q instead of %q", d, got, want)
		}
	}
	if got := age(time.Time{}, now); got != "-" {
		t.Error(got)
	}
}

func TestLongErrorKeepsBothEnds(t *testing.T) {
	t.Parallel()
	const long = "Confirm of producer orders at dns:///orders:9000: Unavailable: " +
		"dial tcp 10.0.0.1:9000: connect: connection refused"
	for text, want := range map[string]string{
		"":                      "",
		strings.Repeat("é", 59): strings.Repeat("é", 59),
		strings.Repeat("é", 60): strings.Repeat("é", 28) + "..." + strings.Repeat("é", 28),
		long:                    "Confirm of producer orders a... connect: connection refused",
		"the channel was closed by the broker: Exception (404) Reason: \"NOT_FOUND - no exchange 'shop' in vhost '/'\"": "" +
			"...NOT_FOUND - no exchange 'shop' in vhost '/'\"",
	} {
		if got := shorten(text); got != want {
			t.Errorf("%q is shortened to %q instead of %q", text, got, want)
		}
	}
}

func TestControlCharactersAreEscaped(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := &commandline.Session{Process: commandline.Process{Out: &out}}
	must.Succeed(t, (&tailCommand{}).print(s, &adminv1.Move{Producer: "a\u009b", Id: "b\u202e"}))
	if printed := out.String(); !strings.HasSuffix(printed, ` a\u009b/b\u202e`+"\n") {
		t.Errorf("tail prints %q", printed)
	}
	out.Reset()
	move := &adminv1.Move{Producer: "a\u009b", Id: "b\u202e"}
	must.Succeed(t, (&tailCommand{Output: commandline.OutputJSON}).print(s, move))
	if printed := out.String(); escape.Lines(printed) != printed {
		t.Errorf("tail prints %q", printed)
	}
}

func TestPreviewShowsTextOrHex(t *testing.T) {
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
