package redis_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// stale is the leftovers of a message whose record is lost.
type stale struct {
	name string
	// leave brings a message to the point of the loss. The claim is the lease holder's, if any.
	leave func(t *testing.T, store *redisstore.Store, client *redis.Client, m halfmsg.Message) *halfmsg.Claim
	// published says that copies of the lost message may have reached the broker.
	published bool
}

func staleStates() (all []stale) {
	for _, state := range halfmsg.Unfinished() {
		all = append(all, stale{
			name: state.String(),
			leave: func(t *testing.T, store *redisstore.Store, _ *redis.Client, m halfmsg.Message) *halfmsg.Claim {
				bring(t, store, m, state)
				return nil
			},
			published: state != halfmsg.Pending && state != halfmsg.Abandoned,
		})
	}
	held := func(state halfmsg.State, events ...halfmsg.Event) stale {
		return stale{
			name: "held " + state.String(),
			leave: func(t *testing.T, store *redisstore.Store, _ *redis.Client, m halfmsg.Message) *halfmsg.Claim {
				create(t, store, m)
				claims := submit(t, store, m.Name)
				for _, event := range events {
					settle(t, store, event, time.Minute, claims...)
				}
				return &claims[0]
			},
			published: state != halfmsg.Pending,
		}
	}
	all = append(all, held(halfmsg.Pending), held(halfmsg.Sendable, halfmsg.EventCommitted),
		held(halfmsg.Acknowledged, halfmsg.EventCommitted, halfmsg.EventAckedMarked))
	for _, key := range []string{"leases", "verdicts", "notes"} {
		all = append(all, stale{name: key, leave: only(key)})
	}
	return all
}

// only leaves nothing but one key.
func only(key string) func(*testing.T, *redisstore.Store, *redis.Client, halfmsg.Message) *halfmsg.Claim {
	return func(t *testing.T, _ *redisstore.Store, client *redis.Client, m halfmsg.Message) *halfmsg.Claim {
		t.Helper()
		ctx, base := t.Context(), "msghandler:{00}:"+m.Producer+":"
		var err error
		if key == "notes" {
			err = client.HSet(ctx, base+"x:"+m.ID, "confirms", 3, "hurry", 1, "events", "1 1 1 unknown - why").Err()
		} else {
			err = client.HSet(ctx, base+key, m.ID, "1").Err()
		}
		must.Succeed(t, err)
		return nil
	}
}

// A SendHalfMessage begins anew when leftovers hold its id but the record is lost: nothing of the lost message decides
// about the new message. Above all, the new message is not published before a Confirm.
func TestCreateRepairsWhatLostRecordLeft(t *testing.T) {
	t.Parallel()
	servers := map[string]func(t *testing.T) string{
		"redis":     func(t *testing.T) string { return servers.Redis(t).Addr },
		"miniredis": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
	}
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := start(t)
			client := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { _ = client.Close() })
			store := open(t, redisstore.Config{URL: "redis://" + addr, Prefix: "msghandler"})
			for _, s := range staleStates() {
				t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
					client.FlushAll(t.Context())
					s.resend(t, store, client, nil)
					client.FlushAll(t.Context())
					s.resend(t, store, client, []string{"before", "beside"})
				})
			}
		})
	}
}

// resend loses a record and sends other content under its id, in a batch with existing messages.
func (s stale) resend(t *testing.T, store *redisstore.Store, client *redis.Client, beside []string) {
	t.Helper()
	old, fresh := half("1"), half("1")
	old.ConfirmAfter, fresh.Body = time.Hour, []byte("other content")
	claim := s.leave(t, store, client, old)
	client.Del(t.Context(), "msghandler:{00}:orders:m:1")
	batch := []halfmsg.Message{fresh}
	for _, id := range beside {
		create(t, store, half(id))
		batch = append(batch, half(id))
	}
	for i, r := range store.Create(t.Context(), batch) {
		if r.Err != nil || r.State != halfmsg.Pending {
			t.Fatalf("create %s: %s, %v", batch[i].Name, r.State, r.Err)
		}
	}
	r, err := store.Get(t.Context(), fresh.Name)
	if err != nil || r.State != halfmsg.Pending || string(r.Body) != "other content" {
		t.Errorf("the message is %s with %q, %v", r.State, r.Body, err)
	}
	if r.LeaseOwner != "" || r.ConfirmAttempts != 0 || len(r.Timeline) != 0 || !r.SendableAt.IsZero() {
		t.Errorf("the message has fields of the lost message: %+v", r)
	}
	if claims, err := store.ClaimSendable(t.Context(), 10, time.Minute); err != nil || len(claims) != 0 {
		t.Errorf("to be published without a question: %v, %v", claims, err)
	}
	if claim != nil {
		for _, event := range []halfmsg.Event{halfmsg.EventCommitted, halfmsg.EventAcked, halfmsg.EventMarkerDeleted} {
			if r := word(t, store, event, 0, *claim)[0]; !errors.Is(r.Err, halfmsg.ErrLeaseLost) {
				t.Errorf("the lost one's owner says %s: %s, %v", event, r.State, r.Err)
			}
		}
	}
	if repairs := sweep(t, store); repairs.Made != 0 {
		t.Errorf("%d repairs were left to the sweeper", repairs.Made)
	}
	if claim := submit(t, store, fresh.Name)[0]; string(claim.Body) != "other content" ||
		(claim.Copies > 0) != s.published {
		t.Errorf("claimed with %q and %d copies counted", claim.Body, claim.Copies)
	}
}
