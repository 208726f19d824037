"""How answers of a model that has tools end, and what that says of the model: functions of plain values."""
