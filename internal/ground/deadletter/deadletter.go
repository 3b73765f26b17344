// Package deadletter holds the rules of dead letters that do not depend on the broker. The consumers of all brokers
// share them.
package deadletter

// The headers of failures, which a consumer adds to the copies of a message. Package consumer documents and exports
// them.
const (
	HeaderRetries       = "msghandler-retries"
	HeaderFirstCause    = "msghandler-first-cause"
	HeaderFirstFailedAt = "msghandler-first-failed-at"
	HeaderDeadReason    = "msghandler-dead-reason"
	HeaderQueue         = "msghandler-origin-queue"
	HeaderExchange      = "msghandler-origin-exchange"
	HeaderRoutingKey    = "msghandler-origin-routing-key"
	HeaderCut           = "msghandler-dead-cut"
)

// IsFailureHeader reports whether a header tells of failures. A replay drops such headers.
func IsFailureHeader(name string) bool {
	switch name {
	case HeaderRetries, HeaderFirstCause, HeaderFirstFailedAt, HeaderDeadReason, HeaderQueue, HeaderExchange,
		HeaderRoutingKey, HeaderCut:
		return true
	}
	return false
}
