package console

import (
	"time"

	"github.com/msghandler/msghandler/internal/peerstats"
)

// snapshot has the counts since the start.
func (m *Metrics) snapshot(now time.Time) peerstats.Snapshot {
	s := peerstats.Snapshot{
		At: now, In: int64(m.stored()), Out: m.peers.Acked(), Refused: m.refused.Load(), Latency: m.peers.Latency.Counts(),
	}
	s.AddPeers(m.peers.Producers(), m.refusals.All(), m.peers.Exchanges())
	return s
}

// Report is how this coordinator sees its producers and exchanges, with the rates of the last half minute.
func (m *Metrics) Report(now time.Time) peerstats.Report {
	added, within := m.meter.Measure(m.snapshot(now))
	return peerstats.NewReport(m.peers.Producers(), m.peers.Exchanges(), added, within)
}

// Stored counts half messages of a producer.
func (m *Metrics) Stored(producer string, messages int64) { m.peers.Stored(producer, messages) }
