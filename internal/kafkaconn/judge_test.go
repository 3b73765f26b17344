package kafkaconn

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A produce request has begun. An error that no broker gives for a produce request does not say what became of it.
func TestErrorsOfOtherRequestsSettleNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err           *kerr.Error
		before, after Fate
	}{
		{kerr.NotEnoughReplicas, Unwritten, Unwritten},
		{kerr.NotLeaderForPartition, Unwritten, Unwritten},
		{kerr.LeaderNotAvailable, Unwritten, Unknown},
		{kerr.ReplicaNotAvailable, Unwritten, Unknown},
		{kerr.ListenerNotFound, Unwritten, Unknown},
		{kerr.ClusterAuthorizationFailed, AccessRefused, Unknown},
		{kerr.SaslAuthenticationFailed, AccessRefused, Unknown},
	} {
		p := &Producer{}
		mark := p.mark()
		if got := p.judge(test.err, mark).Fate; got != test.before {
			t.Errorf("%v before the first request means %v, want %v", test.err.Message, got, test.before)
		}
		p.begun.Add(1)
		if got := p.judge(test.err, mark).Fate; got != test.after {
			t.Errorf("%v after a request means %v, want %v", test.err.Message, got, test.after)
		}
	}
}
