package audit

// MaxCallers is for tests.
const MaxCallers = maxCallers
