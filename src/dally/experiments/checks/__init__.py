"""What must hold for every policy, checked in many small worlds: `dally policy check`, and the property tests."""
