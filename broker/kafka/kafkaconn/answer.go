package kafkaconn

import (
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
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
	// record of the batch may be the reason. No record of the batch is stored. The client fails the records that wait
	// behind the batch with it, and a broker may have one of those. So only the answer to a batch of one record counts.
	BatchRefused
	// Unwritten: no broker has the record. The cluster cannot take records now, or the record was never written, as when
	// its topic was deleted and made again.
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
	return errors.As(a.Err, &answer) && (a.Fate == Unwritten || slices.Contains(lostLeaderErrors, answer))
}

// Errors of the protocol by their meaning. Errors in no list are temporary if Kafka calls them retriable, and otherwise
// refuse a batch.
var (
	topicErrors = []*kerr.Error{
		kerr.UnknownTopicOrPartition, kerr.InvalidTopicException, kerr.TopicAuthorizationFailed,
	}
	accessErrors = []*kerr.Error{
		kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism,
		kerr.IllegalSaslState, kerr.TransactionalIDAuthorizationFailed,
	}
	// elsewhereErrors, like accessErrors, answer a lookup of the topic, a login or the request for a writer's id. No
	// broker answers a produce request that names topics with them, so they say nothing about the requests that were
	// begun: the client may drop the answer of a topic that was made again, and the new topic may have the record.
	elsewhereErrors = []*kerr.Error{
		kerr.LeaderNotAvailable, kerr.ReplicaNotAvailable, kerr.ListenerNotFound, kerr.UnknownTopicID,
	}
	// lostLeaderErrors mean that the partition has no leader now. A leader that loses its partition or its disk while a
	// stored batch waits for the other replicas answers as if the leader had refused the batch.
	lostLeaderErrors = []*kerr.Error{kerr.NotLeaderForPartition, kerr.KafkaStorageError}
	// unsureErrors, like lostLeaderErrors, leave open whether the batch is stored.
	unsureErrors = []*kerr.Error{
		kerr.RequestTimedOut, kerr.NotEnoughReplicasAfterAppend, kerr.NetworkException, kerr.OutOfOrderSequenceNumber,
		kerr.UnknownProducerID, kerr.InvalidProducerEpoch, kerr.DuplicateSequenceNumber, kerr.UnknownServerError,
	}
)

// judgeAnswer says what became of a record that the client reports as stored or failed. before is the traffic to the
// topic when the client got the record, and now is the traffic when the client reports; the open requests are those to
// the partition. An error counts for the last request with the record only, and fails all records that wait behind the
// record: an error settles nothing while another request may have stored the record.
func judgeAnswer(err error, before, now traffic) Answer {
	fate := refusal(err)
	var answer *kerr.Error
	switch {
	case err == nil:
		return Answer{Fate: Stored}
	case now.begun == before.begun: // no request has the record
	case !errors.As(err, &answer) || elsewhere(answer) || now.doubtful != before.doubtful:
		fate = Unknown
	case now.open > 0 && fate != BatchRefused:
		fate = Unknown
	}
	return Answer{Fate: fate, Err: err}
}

// elsewhere reports whether an error answers another request than the one with the record.
func elsewhere(answer *kerr.Error) bool {
	return slices.Contains(elsewhereErrors, answer) || slices.Contains(accessErrors, answer)
}

// refusal is the fate of a record by the error of its only request.
func refusal(err error) Fate {
	var answer *kerr.Error
	switch {
	case !errors.As(err, &answer):
		return Unwritten
	case slices.Contains(topicErrors, answer):
		return TopicRefused
	case slices.Contains(accessErrors, answer):
		return AccessRefused
	case isUnsure(answer):
		return Unknown
	case answer.Retriable && answer != kerr.CorruptMessage:
		return Unwritten
	default:
		return BatchRefused
	}
}

// isUnsure reports whether an error leaves open whether the records are stored.
func isUnsure(err error) bool {
	var answer *kerr.Error
	return errors.As(err, &answer) &&
		(slices.Contains(unsureErrors, answer) || slices.Contains(lostLeaderErrors, answer))
}
