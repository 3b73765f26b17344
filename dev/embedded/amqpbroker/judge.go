package amqpbroker

import (
	"errors"
	"time"
)

// Judge decides the outcome of a publishing. A Judge may block, which holds up only the publishing connection. A Judge
// may be called concurrently for several connections, and may call the broker's methods except Close.
type Judge func(Published) Verdict

// Published is a publishing as a Judge sees it.
type Published struct {
	Exchange, RoutingKey string
	// MessageID, AppID and ContentType are the properties of these names, empty when there is none.
	MessageID, AppID, ContentType string
	// Timestamp is the property of this name, in whole seconds; zero when there is none.
	Timestamp time.Time
	// Headers holds bool, int64, float64, string and time.Time; headers of other types are there with their type's
	// letter.
	Headers map[string]any
	Body    []byte
}

// Verdict is the outcome of a publishing.
type Verdict int

// The verdicts.
const (
	// Ack is the normal handling: return the message if needed, store, confirm.
	Ack Verdict = iota
	// Nack drops the message and sends a nack.
	Nack
	// CloseConn stores the message and cuts the connection in place of a confirm.
	CloseConn
	// Return drops the message, and returns a mandatory message as one without a queue before it confirms.
	Return
	// Forget drops the message and confirms it, as a broker does that confirms before it stores, and fails.
	Forget
)

// errCut ends a connection because a Judge said so.
var errCut = errors.New("the judge cut the connection")

// judge asks the judge, if any. The lock is released meanwhile, so the judge may be slow; the caller must look up
// everything again afterwards.
func (ch *channel) judge(p *publishing) Verdict {
	b := ch.conn.broker
	if b.config.Judge == nil {
		return Ack
	}
	published := Published{
		Exchange:   p.content.exchange,
		RoutingKey: p.content.key,
		Headers:    map[string]any{},
		Body:       p.content.body,
	}
	properties := p.content.properties
	published.MessageID, _ = properties.text(propertyMessageID)
	published.AppID, _ = properties.text(propertyAppID)
	published.ContentType, _ = properties.text(propertyContentType)
	published.Timestamp = properties.time(propertyTimestamp)
	for _, f := range properties.headers() {
		published.Headers[f.name] = f.value.plain()
	}
	b.mu.Unlock()
	defer b.mu.Lock()
	return b.config.Judge(published)
}
