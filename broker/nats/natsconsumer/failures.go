package natsconsumer

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
	// excluded is the number of deliveries that ended without a failure.
	excluded int
	// failed: at least one delivery has failed.
	failed bool
	// noted: the durable consumer has a note that this process handles the message.
	noted bool
}

func (f *failures) isNoted(sequence uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of[sequence].noted
}

func (f *failures) setNoted(sequence uint64, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.of[sequence]
	d.noted = is
	f.set(sequence, d)
}

// noted are the messages that this process has noted.
func (f *failures) noted() (sequences []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for sequence, d := range f.of {
		if d.noted {
			sequences = append(sequences, sequence)
		}
	}
	return sequences
}

// exclude notes a delivery that ended without a failure. JetStream will deliver the message again.
func (f *failures) exclude(sequence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.of[sequence]
	d.excluded++
	f.set(sequence, d)
}

// noteFailure notes a failure, and returns how many failures count. delivered is JetStream's count. Deliveries to other
// processes, and before a restart, may have ended in any way. So the first failure here counts as the only one.
func (f *failures) noteFailure(sequence uint64, delivered int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.of[sequence]
	if !d.failed {
		d.failed = true
		f.set(sequence, d)
		return 1
	}
	return delivered - d.excluded
}

// unexplained is how many deliveries may have ended in any way, this one included.
func (f *failures) unexplained(sequence uint64, delivered int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return delivered - f.of[sequence].excluded
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
