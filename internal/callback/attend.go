package callback

import (
	"fmt"
	"strings"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// resolveAttend returns the target of a producer that is asked over its own streams. is tells whether named is such a
// target. The name in it must be the producer's, or one producer could answer for another.
func (c *Client) resolveAttend(producer, named string) (t target, is bool, err error) {
	name, is := strings.CutPrefix(named, halfmsg.AttendScheme)
	switch {
	case !is:
		return target{}, false, nil
	case name != producer:
		return target{}, true, fmt.Errorf("%w: only %s is a target of producer %s that attends", halfmsg.ErrBadTarget,
			halfmsg.AttendTarget(producer), producer)
	}
	return target{kind: kindAttend, host: name}, true, nil
}

// attendTransport asks a producer over its own streams.
type attendTransport struct {
	msghandlerv1.ProducerServiceClient
}

// Close implements io.Closer. The streams are the producer's.
func (attendTransport) Close() error { return nil }

func (c *Client) openAttend(t target) (transport, error) {
	if c.config.Attending == nil {
		return nil, fmt.Errorf("producer %s attends, and only coordinators have its streams; ask it by a message", t.host)
	}
	return attendTransport{c.config.Attending(t.host)}, nil
}
