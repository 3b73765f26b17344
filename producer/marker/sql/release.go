package sql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/ground/sqldb"
)

// Outcome is the result for a claimed message.
type Outcome struct {
	// ID and Shard are the message's.
	ID    string
	Shard int
	// State is the message's new state.
	State State
	// In is the delay until the message is due again, for StateWaiting and StateHanded.
	In time.Duration
	// Refused counts an attempt.
	Refused bool
	// Unsent: the message certainly did not leave, so this claim is not counted.
	Unsent bool
	// Error is kept for people, up to maxError characters.
	Error string
}

// maxError is how many characters of an error are kept.
const maxError = 1000

// Release records the outcomes of claimed messages, in one transaction, and returns how many of them the claim still
// held. The others were deleted by the coordinator meanwhile, or their lock has ended and another relay has claimed
// them.
func (s *Store) Release(ctx context.Context, token string, outcomes []Outcome) (held int64, err error) {
	alike := make(map[Outcome][]string)
	for _, o := range outcomes {
		id := o.ID
		o.ID, o.Error = "", shortened(o.Error)
		alike[o] = append(alike[o], id)
	}
	err = s.table.Write(ctx, s.config.LockTimeout, func(tx sqldb.Execer) error {
		held = 0
		for o, ids := range alike {
			n, err := s.release(ctx, tx, token, o, ids)
			if err != nil {
				return err
			}
			held += n
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("release messages: %w", err)
	}
	return held, nil
}

func (s *Store) release(ctx context.Context, tx sqldb.Execer, token string, o Outcome, ids []string) (int64, error) {
	set := []string{unlocked, "updated_at = {now}", "state = ?"}
	args := []any{int64(o.State)}
	switch o.State {
	case StateWaiting, StateHanded:
		set = append(set, "due_at = {now} + ?")
		args = append(args, o.In.Milliseconds())
	case StateSent:
		set = append(set, "due_at = NULL", "cleaned_at = {now}", "sent_at = {now}")
	default:
		set = append(set, "due_at = NULL")
	}
	if o.Refused {
		set = append(set, "attempts = attempts + 1")
	}
	if o.Unsent {
		set = append(set, "claims = claims - 1")
	}
	if o.Error != "" {
		set = append(set, "last_error = ?")
		args = append(args, o.Error)
	}
	list, named := s.inList(ids)
	result, err := tx.ExecContext(ctx, s.table.Query(`UPDATE {table} SET `+strings.Join(set, ", ")+
		` WHERE producer = ? AND shard_id = ? AND owner = ? AND id IN (`+list+`)`),
		append(append(args, s.config.Producer, o.Shard, token), named...)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// shortened cuts an error to maxError characters. No database takes a NUL in a text.
func shortened(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "")
	if runes := []rune(text); len(runes) > maxError {
		text = string(runes[:maxError])
	}
	return text
}
