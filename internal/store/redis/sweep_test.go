package redis_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// A backlog is checked in slices, each a run of its own, and the sweeper rests between slices: during a single run all
// other calls would wait.
func TestTheSweeperGoesInSlices(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	store, err := redisstore.New(t.Context(), redisstore.Config{
		URL: servers.Redis(t).URL(),
		Ran: func(name string, _ int, _ time.Duration) {
			if name == "repair" {
				runs.Add(1)
			}
		},
	}.WithDefaults())
	must.Succeed(t, err)
	defer store.Close()
	messages := make([]halfmsg.Message, 100)
	for i := range messages {
		messages[i].Name = halfmsg.Name{Producer: "orders", ID: fmt.Sprint(i)}
		messages[i].ConfirmAfter = time.Hour
	}
	store.Create(t.Context(), messages)
	for more := true; more; {
		var repairs redisstore.Repairs
		if repairs, more, err = store.Sweep(t.Context()); err != nil || repairs.Made > 0 {
			t.Fatalf("%+v, %v", repairs, err)
		}
	}
	if got := runs.Load(); got < 5 {
		t.Errorf("100 messages were looked at in %d runs", got)
	}
}
