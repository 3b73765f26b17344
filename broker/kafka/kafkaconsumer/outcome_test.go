package kafkaconsumer

import (
	"strconv"
	"testing"
	"time"
)

// A copy in a retry topic is never due before its delay has passed.
func TestRetryAtIsNeverEarlier(t *testing.T) {
	t.Parallel()
	second := time.Unix(1_700_000_000, 0)
	for _, after := range []time.Duration{0, 1, time.Millisecond - 1, time.Millisecond} {
		due := second.Add(after)
		ms, err := strconv.ParseInt(retryAt(due), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if late := time.UnixMilli(ms).Sub(due); late < 0 || late >= time.Millisecond {
			t.Errorf("%s is %s later than %s, want less than 1ms and not earlier", time.UnixMilli(ms), late, due)
		}
	}
}
