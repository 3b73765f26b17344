package confirmloop_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// oneDead answers for each target but one.
type oneDead struct{ answered atomic.Int64 }

func (o *oneDead) Confirm(
	_ context.Context, target halfmsg.Target, ids []string, _ bool,
) (map[string]halfmsg.Verdict, error) {
	if target.Address == "dead:1" {
		return nil, errors.New("no route to host")
	}
	o.answered.Add(int64(len(ids)))
	return all(ids, halfmsg.VerdictRolledBack), nil
}

func (o *oneDead) DeleteBusiness(context.Context, halfmsg.Target, []string) error { return nil }

// TestDeadTargetStarvesNoOther has 3,000 older messages of a target that cannot be reached, in Redis, before those of
// another target of the same producer.
func TestDeadTargetStarvesNoOther(t *testing.T) {
	t.Parallel()
	store, err := redisstore.New(t.Context(), redisstore.Config{
		URL: servers.Redis(t).URL(), Prefix: "msghandler", Retention: time.Minute, Logger: slog.New(slog.DiscardHandler),
	})
	must.Succeed(t, err)
	defer store.Close()
	var messages []halfmsg.Message
	for i := range 3020 {
		m := halfmsg.Message{Name: halfmsg.Name{Producer: "orders", ID: fmt.Sprint(i)}, CallbackTarget: "dead:1"}
		if i >= 3000 {
			m.CallbackTarget = "live:1"
		}
		messages = append(messages, m)
	}
	for part := range slices.Chunk(messages, 500) {
		for _, r := range store.Create(t.Context(), part) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	producers := &oneDead{}
	c := confirmloop.New(testConfig(confirmloop.Config{
		Store: store, Callbacks: producers, Pipeline: &delivery.Pipeline{}, Logger: slog.New(slog.DiscardHandler),
	}))
	defer c.Close(context.Background())
	servers.Eventually(t, time.Minute, "the messages of the other target are asked about", func() bool {
		if _, err := c.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		return producers.answered.Load() == 20
	})
}
