// Package simulation runs three shipped coordinators, producers and consumers in one synctest bubble, breaks what
// stands between them as a seed says, repairs it, and judges the end by the ledger of test/faults.
//
// Real: app.App with all its loops, its API over gRPC, its scripts, its publisher, the producers' SDK. Simulated: the
// network, the clock. In the place of servers: miniredis, and the embedded AMQP broker. There are no disks, no kernel
// and no TLS.
//
// All randomness of the world comes from Choices, and every act of a connection passes Network.act.
package simulation
