package serial_test

func issueInChild() bool { return false }
