package confirmloop

import (
	"fmt"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// A message may have a time limit for its verdict beside the attempts (Config.GiveUpAfter). A pass that claims a
// message after the limit asks the final question; UNKNOWN gives the message up, and so does no answer. A Submit that
// claims the message asks as usual, since a producer that has committed late must be heard.
//
// The store's clock decides whether the limit has passed: the times of creation and of the claim are both the store's.

// pastLimit says whether the time limit of a message had passed when a pass claimed the message.
func (c *Confirmer) pastLimit(h *delivery.Leased) bool {
	limit := c.config.GiveUpAfter
	return limit > 0 && h.Backlog && h.Age() >= limit
}

// unanswered is the outcome for a message without an answer: the message waits, or is given up after its time limit.
func (c *Confirmer) unanswered(h delivery.Leased, after time.Duration, cause string) delivery.Outcome {
	assert.Always(h.State == halfmsg.Pending, "only a PENDING message waits for an answer", h.Producer, h.ID)
	if c.pastLimit(&h) {
		return delivery.Outcome{Leased: h, Event: halfmsg.EventTimedOut, Cause: c.limitCause(cause)}
	}
	return delivery.Outcome{
		Leased: h, Event: halfmsg.EventUnreachable, After: c.beforeLimit(&h, after), Cause: cause,
	}
}

// limitCause adds to a cause that the time limit has passed. The limit comes first: timelines cut long causes.
func (c *Confirmer) limitCause(cause string) string {
	return fmt.Sprintf("confirm.give_up_after (%v) has passed: %s", c.config.GiveUpAfter, cause)
}

// pastPatience says whether a committed successor had waited for the message's verdict for long enough when a pass
// claimed the message. A Submit asks as usual, as above.
func (c *Confirmer) pastPatience(h *delivery.Leased) bool {
	patience := c.config.Patience
	return patience > 0 && h.Backlog && !h.AwaitedSince.IsZero() && h.AwaitedFor() >= patience
}

func (c *Confirmer) patienceCause(cause string) string {
	return fmt.Sprintf("a successor with the same ordering key waits, and ordering.patience (%v) has passed: %s",
		c.config.Patience, cause)
}

// beforeLimit shortens a wait that would outlast the message's time limit, or its successors' patience.
func (c *Confirmer) beforeLimit(h *delivery.Leased, after time.Duration) time.Duration {
	if left := c.config.Patience - h.AwaitedFor(); !h.AwaitedSince.IsZero() && left > 0 {
		after = min(after, left)
	}
	if c.config.GiveUpAfter == 0 {
		return after
	}
	if left := c.config.GiveUpAfter - h.Age(); left > 0 {
		return min(after, left)
	}
	return after
}
