package confirmloop

// with changes the limits that no configuration key sets.
func (c Config) with(change func(*limits)) Config {
	if c.limits.queue == 0 {
		c.limits = standardLimits()
	}
	change(&c.limits)
	return c
}

func (c Config) WithQueue(n int) Config { return c.with(func(l *limits) { l.queue = n }) }

func (c Config) WithBytesPerProducer(n int) Config {
	return c.with(func(l *limits) { l.bytesPerProducer = n })
}

func (c Config) WithBreakerFailures(n int) Config {
	return c.with(func(l *limits) { l.breakerFailures = n })
}

func (c Config) WithDeleteTries(n int) Config { return c.with(func(l *limits) { l.deleteTries = n }) }

func (c Config) WithDeleteBacklog(n int) Config {
	return c.with(func(l *limits) { l.deleteBacklog = n })
}
