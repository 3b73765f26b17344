package nats

import "sync"

// maxRemembered bounds the messages in memory; at the limit all are forgotten.
const maxRemembered = 10_000

// failures tells failures from other deliveries, as far as this process saw them: JetStream counts deliveries only.
type failures struct {
	mu sync.Mutex
	// of has the messages that are not settled yet, by their sequence in the stream.
	of map[uint64]deliveries
}

// deliveries are those of one message to this process.
type deliveries struct {
	// spared counts those that ended without a failure.
	spared int
	// failed: one has failed.
	failed bool
}

// spare notes a delivery that ended without a failure and is not the last one.
func (f *failures) spare(sequence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.of[sequence]
	d.spared++
	f.set(sequence, d)
}

// fail notes a failure, and returns how many failures count. delivered is JetStream's count. Deliveries to other
// processes, and before a restart, may have ended in any way. So the first failure here counts as the only one.
func (f *failures) fail(sequence uint64, delivered int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.of[sequence]
	if !d.failed {
		d.failed = true
		f.set(sequence, d)
		return 1
	}
	return delivered - d.spared
}

// forget drops what is known about a settled message.
func (f *failures) forget(sequence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.of, sequence)
}

// reset forgets all messages.
func (f *failures) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.of = nil
}

// set keeps the deliveries of a message; f.mu is held.
func (f *failures) set(sequence uint64, d deliveries) {
	if _, known := f.of[sequence]; f.of == nil || !known && len(f.of) >= maxRemembered {
		f.of = make(map[uint64]deliveries)
	}
	f.of[sequence] = d
}
