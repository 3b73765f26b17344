// Package halfmsg is the domain: the states of a half message, the legal moves between the states, and the promises of
// a store, a publisher and the producers' callbacks.
//
// The package knows neither Redis nor RabbitMQ nor gRPC, and imports the standard library only. The table in state.go
// is the only place that allows a move: every store, loop and diagram derives from the table.
package halfmsg
