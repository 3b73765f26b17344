package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/ground/versions"
)

// Age says whether msghandler supports the version of a broker.
type Age uint8

const (
	// Supported is a tested version, or a broker other than RabbitMQ.
	Supported Age = iota
	// TooOld is a version before the oldest supported version.
	TooOld
	// Untested is a version after the newest tested version.
	Untested
)

// serverOf is the product and its version, as the broker names them in the handshake.
func serverOf(about amqp.Table) string { return fmt.Sprint(about["product"], " ", about["version"]) }

func ageOf(about amqp.Table) Age {
	text, _ := about["version"].(string)
	version, known := versions.Parse(text)
	switch {
	case about["product"] != versions.RabbitMQ.Name || !known:
		return Supported
	case versions.RabbitMQ.TooOld(version):
		return TooOld
	case versions.RabbitMQ.Untested(version):
		return Untested
	default:
		return Supported
	}
}
