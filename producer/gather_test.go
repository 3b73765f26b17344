package producer_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/msghandler/msghandler/producer"
)

func TestConcurrentSendsAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		h := newHouse(t, func(_ *producer.Config, c *coordinator) {
			c.confirms = true
			c.fault = func(_ string, n int) fault {
				if n < 4 { // as many as may be under way at once
					return fault{hold: gate}
				}
				return fault{}
			}
		})
		var sends sync.WaitGroup
		for i := range 1000 {
			sends.Go(func() {
				if err := h.p.Send(t.Context(), message(fmt.Sprint(i)), commits); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(gate)
		sends.Wait()
		must(t, h.p.Close(t.Context()))
		if len(h.delivered) != 1000 {
			t.Errorf("delivered %d", len(h.delivered))
		}
		if a, b := h.count("SendHalfMessages"), h.count("SubmitAll"); a > 20 || b > 400 {
			t.Errorf("%d calls of SendHalfMessages, %d of SubmitAll for 1,000 messages", a, b)
		}
	})
}

func TestBatchesStayUnderTheSizeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		var sends sync.WaitGroup
		for i := range 40 {
			sends.Go(func() {
				m := message(fmt.Sprint(i))
				m.Body = make([]byte, 700<<10)
				if _, err := h.p.SendHalf(t.Context(), m); err != nil {
					t.Error(err)
				}
			})
		}
		sends.Wait()
		for _, n := range h.sizes["SendHalfMessages"] {
			if n > 4 {
				t.Errorf("a call held %d messages of 700 KiB", n)
			}
		}
	})
}

func TestAPoisonedMessageFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		bad := []producer.Message{message("a"), message("b"), message("bad-\xff"), message("d"), message("e")}
		bad[0].Exchange = "amq.bad"
		bad[1].RoutingKey = "\xff"
		bad[3].Headers = map[string]string{"\xff": ""}
		bad[4].ContentType = "\xff"
		var sends sync.WaitGroup
		for i := range 50 {
			sends.Go(func() {
				if _, err := h.p.SendHalf(t.Context(), message(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		for _, m := range bad {
			sends.Go(func() {
				runs := 0
				err := h.p.Send(t.Context(), m, ran(&runs, nil))
				if !errors.Is(err, producer.ErrRejected) || runs != 0 {
					t.Errorf("%q: %v, %d runs", m.ID, err, runs)
				}
			})
		}
		sends.Wait()
		if len(h.contents) != 50 {
			t.Errorf("%d stored", len(h.contents))
		}
	})
}
