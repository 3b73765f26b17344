package natsconn

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// unavailable are the error codes of JetStream by which a server says that it, or the account, can store nothing for
// now. The copy is not stored, and no change of the message would help: no attempt is used.
var unavailable = []jetstream.ErrorCode{
	10002, // resource limits exceeded for account
	10006, // JetStream not in clustered mode
	10007, // JetStream cluster not assigned to this server
	10008, // JetStream system temporarily unavailable: no leader
	10009, // JetStream cluster can not handle request: not the leader
	10023, // insufficient resources
	10028, // insufficient memory resources available
	10039, // JetStream not enabled for account
	10047, // insufficient storage resources available
	10076, // JetStream not enabled
	10118, // stream is offline
	10167, // too many requests
	10194, // stream is offline, with a reason
}

// uncertain are the error codes that leave the fate of the message open.
var uncertain = []jetstream.ErrorCode{
	10063, // expected stream sequence does not match: within a cluster, while the leader changes
	10158, // duplicate message id is in process: an earlier copy is being stored
}

// Fate is what is known about a message after an answer, or after a failure to send.
type Fate uint8

// The fates.
const (
	// Stored: the stream has the message.
	Stored Fate = iota + 1
	// Refused: the stream or the server refuses this message.
	Refused
	// Untaken: no server took the message; Streams.Untaken finds out why.
	Untaken
	// Unavailable: no copy is stored, and the message itself is not the reason.
	Unavailable
	// Unknown: a copy may be stored.
	Unknown
)

// Judge says what the answer to a message means; a nil error is a PubAck. The second result is the cause.
func Judge(err error) (Fate, error) {
	var answer *jetstream.APIError
	switch {
	case err == nil:
		return Stored, nil
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return Untaken, err
	case !errors.As(err, &answer):
		return Unknown, fmt.Errorf("no answer of the stream: %w", err)
	case slices.Contains(unavailable, answer.ErrorCode):
		return Unavailable, fmt.Errorf("JetStream takes no messages: %s (code %d)", answer.Description, answer.ErrorCode)
	case slices.Contains(uncertain, answer.ErrorCode):
		return Unknown, fmt.Errorf("%s (code %d)", answer.Description, answer.ErrorCode)
	default:
		return Refused, fmt.Errorf("refused by the stream: %s (code %d)", answer.Description, answer.ErrorCode)
	}
}

// JudgeUnwritten says what a failure to send a message means. After Unknown the connection is of no use.
func JudgeUnwritten(err error) (Fate, error) {
	for _, not := range []error{
		nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrReconnectBufExceeded, nats.ErrDisconnected,
		jetstream.ErrTooManyStalledMsgs,
	} {
		if errors.Is(err, not) {
			return Unavailable, err
		}
	}
	for _, refusal := range []error{
		nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrBadHeaderMsg, nats.ErrHeadersNotSupported,
	} {
		if errors.Is(err, refusal) {
			return Refused, err
		}
	}
	return Unknown, fmt.Errorf("write to the server: %w", err)
}

// TooLarge reports that the server or the stream takes no message of this size: max_payload, max_msg_size, or the
// 64 KiB of headers.
func TooLarge(err error) bool {
	const messageTooLarge, headersTooLarge = 10054, 10097
	var answer *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) ||
		errors.As(err, &answer) && (answer.ErrorCode == messageTooLarge || answer.ErrorCode == headersTooLarge)
}
