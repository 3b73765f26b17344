package halfmsg

import "time"

// Age is how old the message was when it was claimed, by the store's clock alone. The clock of this process may differ
// from the store's, so neither is compared with the other.
func (c *Claim) Age() time.Duration { return c.claimedAfter(c.CreatedAt) }

// DueAt is when the message became due to be published, by the store's clock: its delay after the verdict. A replay
// does not wait again, and an operator's retry ends the delay. DueAt is zero while the message is PENDING.
func (c *Claim) DueAt() time.Time {
	due := c.SendableAt
	if !due.IsZero() && !c.Replayed {
		due = due.Add(c.Delay)
	}
	if c.ClaimedAt.IsZero() || due.Before(c.ClaimedAt) {
		return due
	}
	return c.ClaimedAt
}

// DueFor is how long the message had been due when it was claimed, likewise; 0 when it was PENDING then.
func (c *Claim) DueFor() time.Duration { return c.claimedAfter(c.DueAt()) }

// AwaitedFor is how long a committed successor had waited for the message's verdict when it was claimed, likewise.
func (c *Claim) AwaitedFor() time.Duration { return c.claimedAfter(c.AwaitedSince) }

func (c *Claim) claimedAfter(then time.Time) time.Duration {
	if c.ClaimedAt.IsZero() || then.IsZero() {
		return 0
	}
	return max(0, c.ClaimedAt.Sub(then))
}
