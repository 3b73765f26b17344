package publish

// The headers that a message carries on every broker. RabbitMQ has properties for some of them: message_id, app_id,
// content_type and timestamp. On brokers without such a property the header takes its place.
const (
	// HeaderAttempt is the number of the copy: 1 is the first. Above 1, an earlier copy may be out.
	HeaderAttempt = "msghandler-attempt"
	// HeaderKey is the message's ordering key, if it has one.
	HeaderKey = "msghandler-key"
	// HeaderID is the message's id, unique for its producer.
	HeaderID = "msghandler-id"
	// HeaderProducer is the name of the producer.
	HeaderProducer = "msghandler-producer"
	// HeaderTimestamp is when the message became due to be published, as RFC 3339 in UTC.
	HeaderTimestamp = "msghandler-timestamp"
	// HeaderContentType is the body's media type, unless the caller has a header of this name.
	HeaderContentType = "content-type"
	// HeaderTrace joins a consumer's span to the producer's trace, as W3C Trace Context says. A header of the caller
	// wins.
	HeaderTrace = "traceparent"
)
