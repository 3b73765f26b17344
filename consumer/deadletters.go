package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrNoLetter is the error for a key without a dead letter.
var ErrNoLetter = errors.New("no such dead letter")

// ErrLookReorders is the error of Oldest for a quorum queue of RabbitMQ: a letter that is given back stands behind the
// letters that were given back before.
var ErrLookReorders = errors.New("a look at one letter changes the order of a quorum queue; list the letters")

// DeadLetters manages the dead letters of a queue, a topic or a stream: letters of consumers, letters of the broker,
// and dead messages of the coordinator. NewDeadLetters of each broker's package makes it, and says what its methods
// need and cost there.
type DeadLetters struct {
	port DeadLetterPort
}

// NewDeadLetters manages the letters of a port. Programs call NewDeadLetters of their broker's package.
func NewDeadLetters(port DeadLetterPort) *DeadLetters { return &DeadLetters{port} }

// List gives the oldest letters.
func (d *DeadLetters) List(ctx context.Context, limit int) ([]Letter, error) {
	return d.ListSelected(ctx, Selection{Limit: max(limit, 1)})
}

// ListSelected gives the letters of a selection, the oldest first.
func (d *DeadLetters) ListSelected(ctx context.Context, s Selection) (letters []Letter, err error) {
	err = d.scan(ctx, s, ToLook, func(l FoundLetter) (last bool, err error) {
		letters = append(letters, *l.Content())
		return false, nil
	})
	return letters, err
}

// Show gives the letter with a Letter.Name, or ErrNoLetter.
func (d *DeadLetters) Show(ctx context.Context, name string) (Letter, error) {
	found, err := d.ListSelected(ctx, Selection{Limit: 1, Match: named(name)})
	switch {
	case err != nil:
		return Letter{}, err
	case len(found) == 0:
		return Letter{}, fmt.Errorf("%s: %w", name, ErrNoLetter)
	}
	return found[0], nil
}

// Oldest gives the oldest letter without its body, or ErrNoLetter. A quorum queue of RabbitMQ has ErrLookReorders.
func (d *DeadLetters) Oldest(ctx context.Context) (oldest Letter, err error) {
	err = ErrNoLetter
	failed := d.scan(ctx, Selection{Limit: 1}, ToFindOldest, func(l FoundLetter) (last bool, _ error) {
		oldest, err = *l.Content(), nil
		oldest.Body = nil
		return true, nil
	})
	if failed != nil {
		return Letter{}, failed
	}
	return oldest, err
}

// Visit shows the letters without their bodies to a function, the oldest first, until the function returns false.
func (d *DeadLetters) Visit(ctx context.Context, visit func(*Letter) bool) error {
	return d.scan(ctx, Selection{}, ToLook, func(l FoundLetter) (last bool, err error) {
		letter := *l.Content()
		letter.Body = nil
		return !visit(&letter), nil
	})
}

// Depth asks the broker for the number of letters, and reads none.
func (d *DeadLetters) Depth(ctx context.Context) (int, error) { return d.port.Depth(ctx) }

// Count counts the letters with these names, as Discard would remove them. Without names Count counts all letters.
func (d *DeadLetters) Count(ctx context.Context, names ...string) (count int, err error) {
	if len(names) == 0 {
		return d.port.Count(ctx)
	}
	err = d.scan(ctx, Selection{Match: named(names...)}, ToLook, func(FoundLetter) (last bool, err error) {
		count++
		return false, nil
	})
	return count, err
}

// Replay publishes letters again, to their first destination, as if they had never failed; all letters when no names
// are given. A letter is removed once the broker has its copy. An interrupted or repeated replay may publish further
// copies of a handled message, with a msghandler-attempt above 1; the inbox drops such copies. Replay returns the
// number of replayed letters; the others stay, and the error names them.
func (d *DeadLetters) Replay(ctx context.Context, may Rule, names ...string) (replayed int, err error) {
	s := Selection{MayReplay: may}
	if len(names) > 0 {
		s.Match = named(names...)
	}
	return d.ReplaySelected(ctx, s)
}

// ReplaySelected is Replay for a selection, whether or not the replay of each letter succeeds.
func (d *DeadLetters) ReplaySelected(ctx context.Context, s Selection) (replayed int, err error) {
	if s.MayReplay == nil {
		return 0, ErrNoRule
	}
	var failed []error
	err = d.scan(ctx, s, ToChange, func(l FoundLetter) (last bool, err error) {
		letter := l.Content()
		if err = letter.mayReplay(s.MayReplay); err == nil {
			err = l.Publish(ctx)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("replay %s: %w", letter.Name(), err))
			return false, nil
		}
		replayed++
		s.tell(letter)
		if err := l.Remove(ctx, "replayed"); err != nil {
			return true, fmt.Errorf("%s is replayed, and stays among the dead letters; discard it: %w", letter.Name(), err)
		}
		return false, nil
	})
	return replayed, errors.Join(append(failed, err)...)
}

// Discard removes the letters with these names for good, and returns how many they were.
func (d *DeadLetters) Discard(ctx context.Context, names ...string) (discarded int, err error) {
	if len(names) == 0 {
		return 0, nil
	}
	return d.DiscardSelected(ctx, Selection{Match: named(names...)})
}

// DiscardSelected is Discard for a selection.
func (d *DeadLetters) DiscardSelected(ctx context.Context, s Selection) (discarded int, err error) {
	err = d.scan(ctx, s, ToChange, func(l FoundLetter) (last bool, err error) {
		letter := l.Content()
		if err := l.Remove(ctx, "discarded"); err != nil {
			return true, fmt.Errorf("discard %s: %w", letter.Name(), err)
		}
		discarded++
		s.tell(letter)
		return false, nil
	})
	return discarded, err
}

// scan visits the letters of a selection until a visit is the last, the context ends, or the limit is reached.
func (d *DeadLetters) scan(
	ctx context.Context, s Selection, purpose Purpose, visit func(FoundLetter) (last bool, err error),
) error {
	scan := s.scan(purpose)
	left := scan.Limit
	if left <= 0 {
		return nil
	}
	return d.port.Scan(ctx, scan, func(l FoundLetter) (last bool, err error) {
		if err := ctx.Err(); err != nil {
			return true, err
		}
		left--
		last, err = visit(l)
		return last || left == 0, err
	})
}

// named matches the letters with one of the names.
func named(names ...string) func(*Letter) bool {
	return func(l *Letter) bool { return slices.Contains(names, l.Name()) }
}
