package pages

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/operate"
)

// A panic in a page is recovered, but a stack that overflows ends the process. So the words of pages do not recurse.
func TestWordsTakeAnyValue(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0", -1: "-1", 999: "999", -1000: "-1,000", 1_234_567: "1,234,567", math.MinInt64: "-9,223,372,036,854,775,808",
		math.MaxInt64: "9,223,372,036,854,775,807",
	} {
		if got := count(n); got != want {
			t.Errorf("count(%d) is %q, want %q", n, got, want)
		}
	}
	for v, want := range map[float64]string{
		.5: "0.5", 1500: "1,500", math.Inf(1): "?", math.Inf(-1): "?", 1e300: "?",
	} {
		if got := rate(v); got != want {
			t.Errorf("rate(%g) is %q, want %q", v, got, want)
		}
	}
	if got := rate(math.NaN()); got != "?" {
		t.Errorf("rate(NaN) is %q", got)
	}
}

func FuzzWords(f *testing.F) {
	f.Add(int64(math.MinInt64), int64(1_702_483_200_000), math.NaN())
	f.Add(int64(-1), int64(math.MaxInt64), -1e300)
	f.Fuzz(func(t *testing.T, n, seconds int64, v float64) {
		at := time.Unix(seconds, n)
		for _, text := range []string{
			count(n), operate.Duration(time.Duration(n)), operate.Ago(at, time.Unix(n, seconds)), stamp(at), iso(at),
			minute(at), rate(v),
		} {
			if text == "" || strings.Contains(text, "--") {
				t.Errorf("%d, %d, %g: %q", n, seconds, v, text)
			}
		}
	})
}
