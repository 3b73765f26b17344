package producer

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// complainInterval is the shortest time between two equal log lines: while a coordinator is away every message fails
// alike.
const complainInterval = 10 * time.Second

// complaints logs failures that no caller can be told, each kind once per interval.
type complaints struct {
	// producer is the name of the producer, which is a part of each message_id.
	producer string
	log      *slog.Logger

	mu    sync.Mutex
	kinds map[string]*complaint
}

type complaint struct {
	at      time.Time
	skipped int
}

// always writes a line for each message, because each line asks an operator to act.
func (c *complaints) always(text, id string, err error) {
	c.log.LogAttrs(context.Background(), slog.LevelError, text,
		slog.String("message_id", c.producer+"/"+id), slog.Any("cause", err))
}

// add writes a line, with the number of equal lines left out since the last one.
func (c *complaints) add(level slog.Level, text, id string, err error) {
	skipped, due := c.due(text)
	if !due {
		return
	}
	c.log.LogAttrs(context.Background(), level, text,
		slog.String("message_id", c.producer+"/"+id), slog.Any("cause", err), slog.Int("not_logged_before", skipped))
}

func (c *complaints) due(text string) (skipped int, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kinds[text]
	if k == nil {
		k = &complaint{}
		if c.kinds == nil {
			c.kinds = make(map[string]*complaint)
		}
		c.kinds[text] = k
	}
	now := time.Now()
	if now.Sub(k.at) < complainInterval {
		k.skipped++
		return 0, false
	}
	skipped, k.skipped, k.at = k.skipped, 0, now
	return skipped, true
}
