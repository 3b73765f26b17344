package redis_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// The time limit counts from SendHalfMessage by Redis's clock: for each coordinator, after a restart, and in each
// form of a message.
func TestTimeLimitSurvivesCoordinators(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	for _, indexed := range []bool{false, true} {
		t.Run(fmt.Sprintf("indexed %t", indexed), func(t *testing.T) {
			t.Parallel()
			config := storing(indexed, redisstore.Config{URL: server.URL(), Prefix: fmt.Sprintf("limit%t", indexed)})
			config.Instance = "one"
			one := open(t, config)
			m := halfmsg.Message{
				Name: halfmsg.Name{Producer: "orders", ID: "1"}, Exchange: "orders", Body: []byte("x"),
				CallbackTarget: "dns:///orders:9000", ConfirmAfter: time.Millisecond,
			}
			if r := one.Create(t.Context(), []halfmsg.Message{m})[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
			claim := func(store *redisstore.Store, lease time.Duration) (claims []halfmsg.Claim) {
				servers.Eventually(t, 20*time.Second, "the message is due", func() bool {
					var err error
					claims, err = store.ClaimPending(t.Context(), map[string]int{"orders": 1}, lease)
					must.Succeed(t, err)
					return len(claims) == 1
				})
				return claims
			}
			// The first coordinator dies with the message, and the second is started after that.
			first := claim(one, 300*time.Millisecond)[0]
			config.Instance = "two"
			two := open(t, config)
			second := claim(two, time.Minute)[0]
			if !second.CreatedAt.Equal(first.CreatedAt) {
				t.Errorf("created at %v, and at %v after a restart", first.CreatedAt, second.CreatedAt)
			}
			if apart := second.ClaimedAt.Sub(first.ClaimedAt); apart < 300*time.Millisecond {
				t.Errorf("the claims are %v apart, which is less than the lease", apart)
			}
			settle := func(store *redisstore.Store, claim halfmsg.Claim) halfmsg.Result {
				return store.Settle(t.Context(), []halfmsg.Settlement{{
					Name: claim.Name, Token: claim.Token, Event: halfmsg.EventTimedOut, Cause: "too old", Backlog: true,
				}})[0]
			}
			if r := settle(one, first); !errors.Is(r.Err, halfmsg.ErrLeaseLost) || r.State != halfmsg.Pending {
				t.Errorf("the dead owner's give-up: %v, %v", r.State, r.Err)
			}
			if r := settle(two, second); r.Err != nil || r.State != halfmsg.Abandoned {
				t.Errorf("the present owner's give-up: %v, %v", r.State, r.Err)
			}
			r, err := two.Get(t.Context(), m.Name)
			if err != nil || r.State != halfmsg.Abandoned || r.ConfirmAttempts != 0 || r.LastError != "too old" {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}
