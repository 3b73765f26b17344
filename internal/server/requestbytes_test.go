package server_test

import (
	"math"
	"testing"

	"github.com/msghandler/msghandler/internal/server"
)

func TestRequestBytesFollowTheMemoryLimit(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]int{
		math.MaxInt64: 256 << 20, 900 << 20: 225 << 20, 4 << 30: 1 << 30, 1 << 20: 32 << 20,
	} {
		if got := server.RequestBytes(limit); got != want {
			t.Errorf("%d bytes with a limit of %d, want %d", got, limit, want)
		}
	}
}
