package halfmsg

import "time"

// Age is how old the message was when it was claimed, by the store's clock alone. The clock of this process may differ
// from the store's, so neither is compared with the other.
func (c *Claim) Age() time.Duration { return c.claimedAfter(c.CreatedAt) }

// SendableFor is how long the message had been SENDABLE when it was claimed, likewise; 0 when it was PENDING then.
func (c *Claim) SendableFor() time.Duration { return c.claimedAfter(c.SendableAt) }

func (c *Claim) claimedAfter(then time.Time) time.Duration {
	if c.ClaimedAt.IsZero() || then.IsZero() {
		return 0
	}
	return max(0, c.ClaimedAt.Sub(then))
}
