package order_test

import (
	"encoding/json"
	"testing"

	"github.com/klauspost/compress/s2"

	"github.com/msghandler/msghandler/dev/bench/order"
)

func TestOrderHasExactSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 2, 100, 512, 1024, 4096} {
		bodies := order.New(size)
		for n := range uint64(64) {
			if body := bodies.Of(n); len(body) != size || size >= 512 && !json.Valid(body) {
				t.Fatalf("order %d of %d bytes is %q", n, size, body)
			}
		}
	}
}

// Bodies that compress better or worse than users' bodies would measure other messages.
func TestOrdersCompressLikeRealOrders(t *testing.T) {
	t.Parallel()
	bodies := order.New(1024)
	packed := 0
	for n := range uint64(256) {
		packed += len(s2.Encode(nil, bodies.Of(n)))
	}
	if share := float64(packed) / 256 / 1024; share < 0.5 || share > 0.75 {
		t.Errorf("packed they have %.2f of their size", share)
	}
}
