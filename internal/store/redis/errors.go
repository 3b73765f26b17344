package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// refusals are the codes of Redis' own errors after which nothing has happened.
var refusals = []struct {
	code string
	is   error
}{
	{"OOM", halfmsg.ErrFull},
	{"LOADING", halfmsg.ErrUnavailable},
	{"MISCONF", halfmsg.ErrUnavailable},
	{"CLUSTERDOWN", halfmsg.ErrUnavailable},
	{"READONLY", halfmsg.ErrUnavailable},
	{"MASTERDOWN", halfmsg.ErrUnavailable},
	{"NOREPLICAS", halfmsg.ErrUnavailable},
	{"TRYAGAIN", halfmsg.ErrUnavailable},
	{"BUSY", halfmsg.ErrUnavailable},
	{"MOVED", halfmsg.ErrUnavailable},
	{"ASK", halfmsg.ErrUnavailable},
	{"NOSCRIPT", halfmsg.ErrUnavailable},
	{"NOAUTH", halfmsg.ErrUnavailable},
	{"WRONGPASS", halfmsg.ErrUnavailable},
	{"NOPERM", halfmsg.ErrUnavailable},
	{"ERR max number of clients", halfmsg.ErrUnavailable},
}

// translate puts a driver's error beneath the kind that callers know. An error that may have had an effect is
// ErrUncertain. Every call may be repeated, so ErrUncertain is never wrong.
func translate(err error) error {
	if err == nil {
		return nil
	}
	if redis.IsAuthError(err) {
		return fmt.Errorf("%w: Redis does not let us in: %w; %s", kindOf(err), err, cause.RedisLogin.Remedy)
	}
	return fmt.Errorf("%w: %w", kindOf(err), err)
}

func kindOf(err error) error {
	var fromRedis redis.Error
	if errors.As(err, &fromRedis) {
		for _, r := range refusals {
			if strings.HasPrefix(fromRedis.Error(), r.code) {
				return r.is
			}
		}
		return halfmsg.ErrUncertain
	}
	var opErr *net.OpError
	var dnsErr *net.DNSError
	switch {
	case errors.As(err, &opErr) && opErr.Op == "dial", errors.As(err, &dnsErr):
		return halfmsg.ErrUnavailable
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, redis.ErrClosed):
		return halfmsg.ErrUnavailable
	}
	return halfmsg.ErrUncertain
}

// errNoPeerMessages is the error for a subscription that Redis has ended, as when a slot of a Cluster moves.
var errNoPeerMessages = fmt.Errorf("%w: no peer messages arrive", halfmsg.ErrUnavailable)

// corrupt is the error for a message with unusable keys.
func corrupt(key string, why string) error {
	return fmt.Errorf("%w: key %s: %s", halfmsg.ErrCorrupt, key, why)
}

// notSent is the error for messages whose context ended before the call was sent.
func notSent(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", halfmsg.ErrUnavailable, err)
	}
	return nil
}

// ErrCursor means List was given a cursor that no page has returned.
var ErrCursor = errors.New("no such place in the listing")

func isCorrupt(err error) bool { return errors.Is(err, halfmsg.ErrCorrupt) }

func isExists(err error) bool { return errors.Is(err, halfmsg.ErrExists) }

func isNotFound(err error) bool { return errors.Is(err, halfmsg.ErrNotFound) }
