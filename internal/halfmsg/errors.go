package halfmsg

import "errors"

// The errors of a store. Adapters wrap their driver's error in these errors, so errors.Is finds the kind and the log
// has the cause.
var (
	// ErrUnavailable: the store could not be reached, or refuses all work for now. Nothing happened; try again.
	ErrUnavailable = errors.New("store unavailable")
	// ErrUncertain: the store was asked and its answer was lost. The move may have happened; asking again is safe.
	ErrUncertain = errors.New("store did not answer")
	// ErrFull: the store is out of room for new messages. Nothing happened; try again later.
	ErrFull = errors.New("store is full")
	// ErrOverQuota: the producer has as many unfinished messages as it may have. Nothing happened; try again later.
	ErrOverQuota = errors.New("producer is over its quota")
	// ErrKeyHeld: the chain of the message's ordering key is as long as it may be. Nothing happened; try again later.
	ErrKeyHeld = errors.New("ordering key has too many unfinished messages")
	// ErrNotFound: no message with the name, nor a receipt.
	ErrNotFound = errors.New("no such message")
	// ErrNoArchive: the store keeps no archive of finished messages.
	ErrNoArchive = errors.New("no archive")
	// ErrNoBroker: the configuration has no broker of the message's name.
	ErrNoBroker = errors.New("no such broker")
	// ErrExists: another message has the name.
	ErrExists = errors.New("another message has that name")
	// ErrIllegal: the move is not allowed from the present state of the message.
	ErrIllegal = errors.New("not allowed in this state")
	// ErrLeaseLost: the token does not own the message, or no longer. Nothing was changed.
	ErrLeaseLost = errors.New("lease lost")
	// ErrCorrupt: the record cannot be read. The record is kept, and the error names the key.
	ErrCorrupt = errors.New("record cannot be read")
)

// The errors of callback targets. A message with such a target is not stored, and the target is never dialled.
var (
	// ErrNoTarget: the request names no callback target, and none is configured for the producer.
	ErrNoTarget = errors.New("no callback target")
	// ErrBadTarget: the target is neither host:port nor dns:///host:port, nor a plain URL of http or https.
	ErrBadTarget = errors.New("bad callback target")
	// ErrForbidden: the configuration does not allow the target.
	ErrForbidden = errors.New("callback target not allowed")
)

// ErrCallFailed says that a producer was reached and failed the call. The reason may lie in a single message.
var ErrCallFailed = errors.New("the producer failed the call")
