package rabbitmq

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/versions"
)

// Age says whether msghandler supports the version of a broker.
type Age uint8

const (
	// Supported is a version that msghandler is tested with, or a broker that is not RabbitMQ.
	Supported Age = iota
	// TooOld is a version before the oldest supported one.
	TooOld
	// Untested is a version after the newest one that msghandler is tested with.
	Untested
)

// serverOf is the product and its version, as the broker names them when it is connected to.
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
