package kafkaconn

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Fate is what became of a record.
type Fate uint8

// The fates.
const (
	// Stored: all in-sync replicas have the record.
	Stored Fate = iota + 1
	// TopicRefused: the cluster takes no record for the topic: no such topic, no valid name, no permission.
	TopicRefused
	// BatchRefused: the broker takes the batch of the record for no reason that goes away: too large, or invalid. Another
	// record of the batch may be the reason. No record of the batch is stored.
	BatchRefused
	// Unwritten: no broker has the record. The cluster cannot take records now, or the record was never written.
	Unwritten
	// AccessRefused: the cluster does not let this user write at all; no broker has the record.
	AccessRefused
	// Unknown: a broker may have the record.
	Unknown
)

// Answer is the fate of a record, with the reason unless the record is stored.
type Answer struct {
	Fate Fate
	Err  error
}

// Blocked reports whether the cluster answered that it cannot take the record now, as without enough replicas.
func (a Answer) Blocked() bool {
	var answer *kerr.Error
	return a.Fate == Unwritten && errors.As(a.Err, &answer)
}

// Errors of the protocol by their meaning. Errors in no list are temporary if Kafka calls them retriable, and otherwise
// refuse a batch.
var (
	topicErrors = []*kerr.Error{
		kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InvalidTopicException, kerr.TopicAuthorizationFailed,
	}
	accessErrors = []*kerr.Error{
		kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism,
		kerr.IllegalSaslState, kerr.TransactionalIDAuthorizationFailed,
	}
	// elsewhereErrors, like accessErrors, answer a lookup of the topic, a login or the request for a writer's id. No
	// broker answers a produce request with them, so they say nothing about one that has no answer.
	elsewhereErrors = []*kerr.Error{kerr.LeaderNotAvailable, kerr.ReplicaNotAvailable, kerr.ListenerNotFound}
	// unsureErrors leave open whether the batch is stored.
	unsureErrors = []*kerr.Error{
		kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend, kerr.NetworkException, kerr.OutOfOrderSequenceNumber,
		kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.DuplicateSequenceNumber, kerr.UnknownServerError,
	}
)

// mark is the state of the counters when a record is handed to the client.
type mark struct{ begun, unanswered int64 }

func (p *Producer) mark() mark {
	return mark{begun: p.begun.Load(), unanswered: p.unanswered.Load()}
}

// judge says what became of a record that the client reports as stored or failed. An answer of the cluster counts for
// the last try only. An earlier try may have ended without an answer, and then a broker may have the record.
func (p *Producer) judge(err error, before mark) Answer {
	now := p.mark()
	var answer *kerr.Error
	switch {
	case err == nil:
		return Answer{Fate: Stored}
	case now.begun == before.begun:
		return Answer{Fate: refusal(err, Unwritten), Err: err}
	case errors.As(err, &answer) && now.unanswered == before.unanswered && !elsewhere(answer):
		return Answer{Fate: refusal(err, Unwritten), Err: err}
	}
	fate := refusal(err, Unknown)
	if fate == AccessRefused {
		fate = Unknown
	}
	return Answer{Fate: fate, Err: err}
}

// elsewhere reports whether an error answers another request than the one with the record.
func elsewhere(answer *kerr.Error) bool {
	return slices.Contains(elsewhereErrors, answer) || slices.Contains(accessErrors, answer)
}

// refusal is the fate of a record by the error alone; temporary is the fate where the error refuses nothing.
func refusal(err error, temporary Fate) Fate {
	var answer *kerr.Error
	switch {
	case !errors.As(err, &answer):
		return temporary
	case slices.Contains(topicErrors, answer):
		return TopicRefused
	case slices.Contains(accessErrors, answer):
		return AccessRefused
	case slices.Contains(unsureErrors, answer):
		return Unknown
	case answer.Retriable && answer != kerr.CorruptMessage:
		return temporary
	default:
		return BatchRefused
	}
}

// counted wraps a connection so that a produce request counts before its first byte is written.
func (p *Producer) counted(conn net.Conn) net.Conn {
	return &countingConn{Conn: conn, producer: p}
}

type countingConn struct {
	net.Conn
	producer *Producer
	// produced: a produce request was written here. The client has a connection of its own for produce requests.
	produced atomic.Bool
}

// requestHead is the size of a request and its key. The client writes each request with one call.
const requestHead = 6

// Write implements net.Conn.
func (c *countingConn) Write(b []byte) (int, error) {
	if len(b) >= requestHead && int16(binary.BigEndian.Uint16(b[4:requestHead])) == int16(kmsg.Produce) {
		c.produced.Store(true)
		c.producer.begun.Add(1)
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn. The last produce requests of the connection may have no answer.
func (c *countingConn) Close() error {
	if c.produced.Load() {
		c.producer.unanswered.Add(1)
	}
	return c.Conn.Close()
}

var (
	_ kgo.HookBrokerE2E        = (*Producer)(nil)
	_ kgo.HookBrokerDisconnect = (*Producer)(nil)
)
