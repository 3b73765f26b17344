package cli

import (
	"strings"
	"testing"
	"time"
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
	}
	for name, tt := range tests {
		if got := preview(tt.body); !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
