package loglimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/loglimit"
)

func TestKindsAreLoggedOncePerInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := loglimit.New(time.Second)
		want := func(kind string, wantSuppressed int, wantDue bool) {
			t.Helper()
			if suppressed, due := l.Due(kind); suppressed != wantSuppressed || due != wantDue {
				t.Errorf("%s: got %d, %t; want %d, %t", kind, suppressed, due, wantSuppressed, wantDue)
			}
		}
		want("a", 0, true)
		want("a", 0, false)
		want("a", 0, false)
		want("b", 0, true)
		time.Sleep(time.Second)
		want("a", 2, true)
		want("a", 0, false)
		want("b", 0, true)
	})
}
