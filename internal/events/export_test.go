package events

import "time"

func (c Config) WithTimeout(d time.Duration) Config { c.timeout = d; return c }
