package kafkaconn

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// An error settles a record only while no request but the answered one may have stored the record.
func TestErrorsSettleOnlyTheirOwnRequest(t *testing.T) {
	t.Parallel()
	before := traffic{begun: 3, doubtful: 1}
	unwritten, answered := before, traffic{begun: 4, doubtful: 1}
	open, doubtful := traffic{begun: 5, doubtful: 1, open: 1}, traffic{begun: 5, doubtful: 2}
	cancelled := errors.New("the context has ended")
	for _, test := range []struct {
		err                                 error
		unwritten, answered, open, doubtful Fate
	}{
		{nil, Stored, Stored, Stored, Stored},
		{cancelled, Unwritten, Unknown, Unknown, Unknown},
		{kerr.NotEnoughReplicas, Unwritten, Unwritten, Unknown, Unknown},
		{kerr.NotLeaderForPartition, Unknown, Unknown, Unknown, Unknown},
		{kerr.KafkaStorageError, Unknown, Unknown, Unknown, Unknown},
		{kerr.UnknownTopicOrPartition, TopicRefused, TopicRefused, Unknown, Unknown},
		{kerr.UnknownTopicID, Unwritten, Unknown, Unknown, Unknown},
		{kerr.TopicAuthorizationFailed, TopicRefused, TopicRefused, Unknown, Unknown},
		{kerr.MessageTooLarge, BatchRefused, BatchRefused, BatchRefused, Unknown},
		{kerr.RequestTimedOut, Unknown, Unknown, Unknown, Unknown},
		{kerr.LeaderNotAvailable, Unwritten, Unknown, Unknown, Unknown},
		{kerr.ReplicaNotAvailable, Unwritten, Unknown, Unknown, Unknown},
		{kerr.ListenerNotFound, Unwritten, Unknown, Unknown, Unknown},
		{kerr.ClusterAuthorizationFailed, AccessRefused, Unknown, Unknown, Unknown},
		{kerr.SaslAuthenticationFailed, AccessRefused, Unknown, Unknown, Unknown},
	} {
		for _, now := range []struct {
			what    string
			traffic traffic
			want    Fate
		}{
			{"without a request", unwritten, test.unwritten},
			{"after one answered request", answered, test.answered},
			{"while another request is open", open, test.open},
			{"after a request without an answer", doubtful, test.doubtful},
		} {
			if got := judgeAnswer(test.err, before, now.traffic).Fate; got != now.want {
				t.Errorf("%v %s means %v, want %v", test.err, now.what, got, now.want)
			}
		}
	}
}
