package natsconsumer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
)

// DeadLetters manages the letters of a dead-letter stream: letters of consumers, and dead messages of the coordinator.
// Its methods connect, and read the letters one by one without a consumer on the stream. So looking changes nothing,
// also for others who look at the same time.
//
// The user needs permission to publish to $JS.API.STREAM.INFO.> and $JS.API.STREAM.MSG.GET.STREAM, or to
// $JS.API.DIRECT.GET.STREAM where the stream has allow_direct. Replay and Discard also need
// $JS.API.STREAM.MSG.DELETE.STREAM, and Replay needs the subjects of the messages.
type DeadLetters struct {
	address address.NATS
	tls     *tls.Config
	stream  string
}

// NewDeadLetters describes a dead-letter stream. The first method call connects. URL and TLS are as in Config.
func NewDeadLetters(url string, tls *tls.Config, stream string) (*DeadLetters, error) {
	where, err := address.ParseNATS(url)
	if err != nil {
		return nil, fmt.Errorf("natsconsumer.NewDeadLetters: URL %w", err)
	}
	if !isName(stream) {
		return nil, fmt.Errorf("natsconsumer.NewDeadLetters: %q cannot be the name of a stream; "+
			"name the DeadLetterStream of the consumers, such as DEAD", stream)
	}
	return &DeadLetters{where, tls, stream}, nil
}

// List gives the oldest letters.
func (d *DeadLetters) List(ctx context.Context, limit int) ([]consumer.Letter, error) {
	return d.ListSelected(ctx, consumer.Selection{Limit: max(limit, 1)})
}

// ListSelected gives the letters of a selection, the oldest first.
func (d *DeadLetters) ListSelected(
	ctx context.Context, s consumer.Selection,
) (letters []consumer.Letter, err error) {
	s = s.WithDefaults()
	err = d.walk(ctx, func(_ *walk, l *letter) (last bool, err error) {
		if len(letters) < s.Limit && s.Match(&l.Letter) {
			letters = append(letters, l.Letter)
		}
		return len(letters) >= s.Limit, nil
	})
	return letters, err
}

// Show gives the letter with a Message.Key, or consumer.ErrNoLetter. A letter without an id is asked for by PRODUCER/,
// here and in Replay and Discard.
func (d *DeadLetters) Show(ctx context.Context, key string) (consumer.Letter, error) {
	var found *letter
	err := d.walk(ctx, func(_ *walk, l *letter) (last bool, err error) {
		if l.Name() == key {
			found = l
		}
		return found != nil, nil
	})
	switch {
	case err != nil:
		return consumer.Letter{}, err
	case found == nil:
		return consumer.Letter{}, fmt.Errorf("%s: %w", key, consumer.ErrNoLetter)
	}
	return found.Letter, nil
}

// Count counts the letters with these keys, as Discard would remove them. Without keys Count gives the number of
// messages of the stream, and reads none.
func (d *DeadLetters) Count(ctx context.Context, keys ...string) (count int, err error) {
	if len(keys) == 0 {
		return d.Depth(ctx)
	}
	err = d.Visit(ctx, func(l *consumer.Letter) bool {
		if slices.Contains(keys, l.Name()) {
			count++
		}
		return true
	})
	return count, err
}

// Visit shows the letters without their bodies to a function, the oldest first, until the function returns false. Only
// the visited letter is in memory.
func (d *DeadLetters) Visit(ctx context.Context, visit func(*consumer.Letter) bool) error {
	return d.walk(ctx, func(_ *walk, l *letter) (last bool, err error) {
		l.Body = nil
		return !visit(&l.Letter), nil
	})
}

// Oldest gives the oldest letter without its body, or consumer.ErrNoLetter.
func (d *DeadLetters) Oldest(ctx context.Context) (oldest consumer.Letter, err error) {
	err = consumer.ErrNoLetter
	failed := d.Visit(ctx, func(l *consumer.Letter) bool {
		oldest, err = *l, nil
		return false
	})
	if failed != nil {
		return consumer.Letter{}, failed
	}
	return oldest, err
}

// Replay publishes letters again, to their first stream and subject, as if they had never failed; all letters when no
// keys are given. A letter is removed when the stream has acknowledged its copy. The copies of a letter have one
// Nats-Msg-Id, so an interrupted and repeated replay is stored once within the stream's deduplication window. A copy
// has a msghandler-attempt above 1; the inbox drops copies of a handled message. Replay returns the number of replayed
// letters; the others stay, and the error names them.
func (d *DeadLetters) Replay(ctx context.Context, may consumer.Rule, keys ...string) (replayed int, err error) {
	return d.ReplaySelected(ctx, consumer.Selection{Match: deadletter.WithKey[*consumer.Letter](keys), MayReplay: may})
}

// Discard removes the letters with these keys for good, and returns how many they were.
func (d *DeadLetters) Discard(ctx context.Context, keys ...string) (discarded int, err error) {
	return d.DiscardOldest(ctx, math.MaxInt, keys...)
}

// DiscardOldest is Discard for at most limit letters, the oldest first. A limit below 0 is an error.
func (d *DeadLetters) DiscardOldest(ctx context.Context, limit int, keys ...string) (discarded int, err error) {
	if limit <= 0 {
		return 0, deadletter.CheckLimit(limit)
	}
	if len(keys) == 0 {
		return 0, nil
	}
	return d.DiscardSelected(ctx, consumer.Selection{Limit: limit, Match: deadletter.WithKey[*consumer.Letter](keys)})
}

// ReplaySelected is Replay for a selection, whether or not the replay of each letter succeeds.
func (d *DeadLetters) ReplaySelected(ctx context.Context, s consumer.Selection) (replayed int, err error) {
	if s.MayReplay == nil {
		return 0, consumer.ErrNoRule
	}
	s = s.WithDefaults()
	left := s.Limit
	var failed []error
	err = d.walk(ctx, func(w *walk, l *letter) (last bool, err error) {
		if left <= 0 || !s.Match(&l.Letter) {
			return left <= 0, nil
		}
		if err := w.removable(); err != nil {
			return true, err
		}
		left--
		err = s.MayReplay(&l.Letter)
		if err == nil {
			err = w.post(ctx, l)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("replay %s: %w", l.Name(), err))
			return left == 0, ctx.Err()
		}
		replayed++
		s.Changed(&l.Letter)
		if err := w.remove(ctx, l); err != nil {
			return true, fmt.Errorf("%s is replayed, and stays among the dead letters; discard it: %w",
				l.Name(), err)
		}
		return left == 0, nil
	})
	return replayed, errors.Join(append(failed, err)...)
}

// DiscardSelected is Discard for a selection.
func (d *DeadLetters) DiscardSelected(ctx context.Context, s consumer.Selection) (discarded int, err error) {
	s = s.WithDefaults()
	err = d.walk(ctx, func(w *walk, l *letter) (last bool, err error) {
		if discarded >= s.Limit || !s.Match(&l.Letter) {
			return discarded >= s.Limit, nil
		}
		if err := errors.Join(w.removable(), ctx.Err()); err != nil {
			return true, err
		}
		if err := w.remove(ctx, l); err != nil {
			return true, fmt.Errorf("discard %s: %w", l.Name(), err)
		}
		discarded++
		s.Changed(&l.Letter)
		return discarded == s.Limit, nil
	})
	return discarded, err
}

// isName reports whether a stream or a consumer can have a name.
func isName(name string) bool { return name != "" && !strings.ContainsAny(name, ".*> \t\r\n/\\") }
